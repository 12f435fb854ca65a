// What each operation makes of sets on the device, against ir/interval: bit for bit, for every
// operation and sets of all kinds.
#include "ir/interval.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>

#include "engines/jit/render_range.h"
#include "tests/engines/jit/probe.h"
#include "tests/engines/jit/rendered_code.h"
#include "tests/ir/random_program.h"

namespace fovea::test {
namespace {

using namespace ir;

constexpr const char* head =
    "#include \"tests/engines/jit/probe_code.h\"\nnamespace fovea::device {\n";

std::string function_of(const OpInfo& row) {
  std::string out =
      "extern \"C\" void " + std::string(row.name) + "(const ValueSet* a, ValueSet* out) {\n";
  std::vector<std::string> args;
  for (std::size_t i = 0; i < row.arity(); ++i) {
    const Type type = row.argument(i);
    args.push_back("x" + std::to_string(i));
    out += "  const auto " + args.back() + " = " +
           (type == Type::F32   ? "reals_of"
            : type == Type::I32 ? "ints_of"
                                : "bools_of") +
           "(a[" + std::to_string(i) + "]);\n";
  }
  return out + "  put(*out, " + jit::interval_text(row.op, args) + ");\n}\n";
}

IntInterval random_ints(Random& random) {
  if (random.chance(5)) return {};
  const std::int32_t x = random_int(random), y = random.chance(30) ? x : random_int(random);
  return {std::min(x, y), std::max(x, y)};
}

RealInterval random_reals(Random& random) {
  if (random.chance(5)) return {};
  if (random.chance(5)) return RealInterval::none();
  const float x = random_float(random), y = random.chance(30) ? x : random_float(random);
  if (std::isnan(x) || std::isnan(y)) return RealInterval::none();
  return {std::min(x, y), std::max(x, y), random.chance(20)};
}

BoolSet random_bools(Random& random) {
  const std::uint32_t kind = random.below(3);
  return {kind != 0, kind != 1};
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

bool same(Type type, const ValueSet& a, const Range& b) {
  switch (type) {
    case Type::I32: return a.i_lo == b.i.lo && a.i_hi == b.i.hi;
    case Type::F32: return same(a.f_lo, b.f.lo) && same(a.f_hi, b.f.hi) && a.nan == b.f.nan;
    case Type::Bool: break;
  }
  return a.can_false == b.b.can_false && a.can_true == b.b.can_true;
}

TEST(DeviceInterval, EveryOperationAsOnTheHost) {
  std::string text = head;
  for (const OpInfo& row : all_ops) {
    if (row.arity() > 0) text += function_of(row);
  }
  HostLibrary library;
  ASSERT_EQ(library.build(text + "}\n"), "");
  const std::uint64_t seed = test_seed();
  for (const OpInfo& row : all_ops) {
    if (row.arity() == 0) continue;
    const auto operation = library.find<void(const ValueSet*, ValueSet*)>(std::string(row.name));
    for (std::uint64_t i = 0; i < cases(4000); ++i) {
      Random random(seed, i);
      std::array<Range, 3> args;
      std::array<ValueSet, 3> sets{};
      for (std::size_t j = 0; j < 3; ++j) {
        args[j] = {random_ints(random), random_reals(random), random_bools(random)};
        sets[j] = {args[j].i.lo,  args[j].i.hi,        args[j].f.lo,      args[j].f.hi,
                   args[j].f.nan, args[j].b.can_false, args[j].b.can_true};
      }
      const Range wanted = apply_range(row.op, std::span(args).first(row.arity()));
      ValueSet got{};
      operation(sets.data(), &got);
      ASSERT_TRUE(same(row.result(), got, wanted))
          << row.name << ", " << seed_text(seed, i) << ": [" << got.i_lo << ", " << got.i_hi
          << "] or [" << got.f_lo << ", " << got.f_hi << "], but [" << wanted.i.lo << ", "
          << wanted.i.hi << "] or [" << wanted.f.lo << ", " << wanted.f.hi << "]";
    }
  }
}

}  // namespace
}  // namespace fovea::test

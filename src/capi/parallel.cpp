// Plans for many ranks: fovea_parallel_plan.
#include "attention/parallel.h"

#include "attention/rules.h"
#include "base/error.h"
#include "capi/call.h"
#include "capi/captured.h"
#include "capi/problem.h"
#include "capi/report.h"

using namespace fovea;
using namespace fovea::capi;

namespace {

std::string text_or(const char* text, const char* otherwise) {
  return text == nullptr ? otherwise : text;
}

ParallelSpec to_spec(const fovea_parallel_config& config) {
  return {config.ranks, strategy_of(text_or(config.strategy, "ring")),
          order_of(text_or(config.order, "contiguous")), config.head_ranks};
}

// A scalar that is not bound here has its default, or is not known.
std::vector<std::optional<ir::ScalarValue>> scalars_of(const ir::Program& program,
                                                       const fovea_bindings& values) {
  std::vector<std::optional<ir::ScalarValue>> out(program.scalars().size());
  for (std::size_t i = 0; i < values.scalar_count; ++i) {
    const fovea_scalar_binding& bound = values.scalars[i];
    for (std::size_t slot = 0; slot < out.size(); ++slot) {
      if (bound.name == nullptr || program.scalars()[slot].name != bound.name) continue;
      out[slot] = ir::ScalarValue{static_cast<float>(bound.value), 0, 0};
      if (program.scalars()[slot].type == ir::Type::I32) {
        out[slot] = ir::ScalarValue{0, static_cast<std::int32_t>(bound.value), 0};
      }
    }
  }
  return out;
}

ParallelValues::Side side_of(const Sequences::Names& names, std::int64_t count,
                             const std::int32_t* lengths, const std::int32_t* starts) {
  const auto n = static_cast<std::size_t>(count);
  Sequences all{names, {}, {}, {}, most_positions, 0};
  if (lengths != nullptr) all.lengths = {lengths, n};
  if (starts != nullptr) all.starts = {starts, n + 1};
  if (starts != nullptr) all.rows = starts[n];
  check_sequences(all);
  return {all.starts, all.lengths};
}

}  // namespace

fovea_status fovea_parallel_plan(fovea_problem problem, const fovea_parallel_config* config,
                                 const fovea_bindings* values, uint32_t flags,
                                 fovea_report* report) {
  return report_text(report, "report", [&] {
    const Problem& whole = *content(problem, "problem").problem;
    const auto known = read_struct(config, {"config", "fovea_parallel_config"});
    fovea_bindings given{};
    if (values != nullptr)
      given = read_struct(values, {"values", "fovea_bindings"}, first_bindings_size);
    const CapturedBindings captured(whole.program,
                                    {.argument = "values",
                                     .tensors = given.tensors,
                                     .tensor_count = given.tensor_count,
                                     .may_lack = true},
                                    {whole.sizes, whole.h_global});
    const auto scalars = scalars_of(whole.program, given);
    ParallelValues bound;
    bound.q = side_of({"values.q_lengths", "values.q_starts", "", "sq", "rows"}, whole.sizes.b,
                      given.q_lengths, given.q_starts);
    bound.k = side_of({"values.k_lengths", "values.k_starts", "", "skv", "rows"}, whole.sizes.b,
                      given.k_lengths, given.k_starts);
    bound.tensors = captured.tensors();
    bound.scalars = scalars;
    ParallelPlan plan(whole, bound, to_spec(known));
    if (known.rank < 0 || known.rank >= known.ranks) {
      throw InvalidArgument("config.rank is " + std::to_string(known.rank) +
                            "; it must be less than ranks, " + std::to_string(known.ranks));
    }
    if ((flags & ~std::uint32_t{FOVEA_EXPLAIN_JSON}) != 0) {
      throw InvalidArgument("flags is " + std::to_string(flags) +
                            "; it may have FOVEA_EXPLAIN_JSON (1)");
    }
    return (flags & FOVEA_EXPLAIN_JSON) != 0 ? to_json(plan, known.rank) : to_table(plan);
  });
}

#include "engines/cpu/strips/strip_fuse.h"

#include <bit>

namespace fovea::cpu {
namespace {

using ir::Stage;

class Fusion {
 public:
  Fusion(ValueGraph& values, IntegerSlopes& slopes) : values_(values), slopes_(slopes) {}

  void run() {
    for (std::uint32_t v = 0; v < values_.all.size(); ++v) {
      if (values_[v].op == StripOp::IndexK) k_ = v;
    }
    const std::size_t count = values_.all.size();
    for (std::uint32_t v = 0; v < count; ++v) {
      if (values_[v].stage == Stage::Element && values_[v].uses > 0) fuse_at(v);
    }
    values_.count_uses();
    for (std::uint32_t v = 0; v < count; ++v) {
      if (values_[v].stage == Stage::Element && values_[v].uses > 0) line(v);
    }
    values_.count_uses();
  }

 private:
  void fuse_at(std::uint32_t v) {
    switch (values_[v].op) {
      case StripOp::Tanh: tanh_of_quotient(v); break;
      case StripOp::MulF: soft_cap(v); break;
      case StripOp::DivF: scaled_product(v); break;
      case StripOp::FloatOfInt: line_to_float(v); break;
      case StripOp::AddF:
      case StripOp::SubF:
        if (!add_line(v)) multiply_add(v);
        break;
      case StripOp::SelectF:
      case StripOp::SelectI:
      case StripOp::SelectB: select_compare(v); break;
      case StripOp::And: and_compare(v); break;
      default: break;  // stays as it is
    }
  }

  bool splat(std::uint32_t v) const { return is_splat(values_[v].stage); }
  std::uint32_t arg(std::uint32_t v, std::size_t i) const { return values_[v].args[i]; }

  // Whether `v` is an operation of the inner loop that has one user.
  bool inner(std::uint32_t v, StripOp op) const {
    const Value& value = values_[v];
    return value.op == op && value.stage == Stage::Element && value.uses == 1;
  }
  // The same, and it need not be computed operation by operation.
  bool free(std::uint32_t v, StripOp op) const { return inner(v, op) && !values_[v].exact; }

  void become(std::uint32_t v, StripOp op, std::vector<std::uint32_t> args, std::int32_t mode = 0) {
    Value& value = values_[v];
    value.op = op;
    value.args = std::move(args);
    value.mode = mode;
  }

  // Operands of a product of which the second is a splat, in either order.
  struct ScaledProduct {
    std::uint32_t vector = no_value, factor = no_value;
    explicit operator bool() const { return vector != no_value; }
  };
  ScaledProduct scaled(std::uint32_t product) const {
    const std::uint32_t a = arg(product, 0), b = arg(product, 1);
    if (splat(b) && !splat(a)) return {a, b};
    if (splat(a) && !splat(b)) return {b, a};
    return {};
  }

  void tanh_of_quotient(std::uint32_t v) {
    const std::uint32_t x = arg(v, 0);
    if (values_[v].exact || !free(x, StripOp::DivF) || !splat(arg(x, 1))) return;
    become(v, StripOp::TanhOfQuotient, {arg(x, 0), arg(x, 1)});
  }

  void soft_cap(std::uint32_t v) {
    const ScaledProduct product = scaled(v);
    if (values_[v].exact || !product || !free(product.vector, StripOp::TanhOfQuotient)) return;
    become(v, StripOp::SoftCap, {arg(product.vector, 0), arg(product.vector, 1), product.factor});
  }

  // (a u) b / v, and (a u) (1 - t t) / v, in any order of the factors.
  void scaled_product(std::uint32_t v) {
    const std::uint32_t product = arg(v, 0);
    if (values_[v].exact || !splat(arg(v, 1)) || !free(product, StripOp::MulF)) return;
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const std::uint32_t first = arg(product, i), second = arg(product, 1 - i);
      if (!free(first, StripOp::MulF) || splat(second)) continue;
      const ScaledProduct a = scaled(first);
      if (!a) continue;
      if (is_tanh_slope(second)) {
        become(v, StripOp::MulTanhSlope, {a.vector, arg(second, 0), a.factor, arg(v, 1)});
      } else {
        become(v, StripOp::MulMulDiv, {a.vector, second, a.factor, arg(v, 1)});
      }
      return;
    }
  }

  // 1 - t t, which multiply_add has seen before.
  bool is_tanh_slope(std::uint32_t v) const {
    if (!free(v, StripOp::NegMulAdd) || arg(v, 0) != arg(v, 1)) return false;
    const Value& one = values_[arg(v, 2)];
    return one.op == StripOp::ConstF && std::bit_cast<float>(one.payload) == 1.0f;
  }

  // Sums and differences of positions and of what is known per row. Runs last, since other rules
  // look for the sums themselves.
  void line(std::uint32_t v) {
    const StripOp op = values_[v].op;
    if (op != StripOp::AddI && op != StripOp::SubI && op != StripOp::NegI) return;
    bool nested = false;  // a single operation is as fast
    for (const std::uint32_t x : values_[v].args) {
      nested = nested || values_[x].stage == Stage::Element;
    }
    if (!nested) return;
    if (const auto found = line_of(v)) become(v, StripOp::Line, {k_, found->rest}, found->slope);
  }

  // f32(rest + slope k)
  void line_to_float(std::uint32_t v) {
    const std::uint32_t x = arg(v, 0);
    if (values_[x].stage != Stage::Element) return;
    if (const auto found = line_of(x)) {
      become(v, StripOp::LineToFloat, {k_, found->rest}, found->slope);
    }
  }

  struct Line {
    std::uint32_t rest;
    std::int32_t slope;
  };
  std::optional<Line> line_of(std::uint32_t x) {
    const std::optional<std::int32_t> slope = slopes_.slope(x);
    if (!slope) return std::nullopt;
    const std::uint32_t rest = slopes_.rest(x);
    if (rest == no_value) return std::nullopt;
    return Line{rest, *slope};
  }

  // x + u line, x - u line, and the same with |line|.
  bool add_line(std::uint32_t v) {
    if (values_[v].exact) return false;
    const bool subtract = values_[v].op == StripOp::SubF;
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
      if (subtract && i == 0) continue;
      const std::uint32_t product = arg(v, i), x = arg(v, 1 - i);
      if (!free(product, StripOp::MulF) || splat(x)) continue;
      const ScaledProduct p = scaled(product);
      if (!p) continue;
      if (inner(p.vector, StripOp::LineToFloat)) {
        const std::uint32_t rest = arg(p.vector, 1);
        become(v, subtract ? StripOp::SubLine : StripOp::AddLine, {x, p.factor, k_, rest},
               values_[p.vector].mode);
        return true;
      }
      if (!inner(p.vector, StripOp::FloatOfInt)) continue;
      const std::uint32_t size = arg(p.vector, 0);
      if (!inner(size, StripOp::AbsI)) continue;
      if (const auto found = line_of(arg(size, 0))) {
        become(v, subtract ? StripOp::SubAbsLine : StripOp::AddAbsLine,
               {x, p.factor, k_, found->rest}, found->slope);
        return true;
      }
    }
    return false;
  }

  void multiply_add(std::uint32_t v) {
    if (values_[v].exact) return;
    const std::uint32_t a = arg(v, 0), b = arg(v, 1);
    const bool subtract = values_[v].op == StripOp::SubF;
    if (free(a, StripOp::MulF)) {
      become(v, subtract ? StripOp::MulSub : StripOp::MulAdd, {arg(a, 0), arg(a, 1), b});
    } else if (free(b, StripOp::MulF)) {
      become(v, subtract ? StripOp::NegMulAdd : StripOp::MulAdd, {arg(b, 0), arg(b, 1), a});
    }
  }

  // i32 comparisons of a splat and a vector become part of the select that uses them.
  void select_compare(std::uint32_t v) {
    const std::uint32_t condition = arg(v, 0);
    if (values_[condition].stage != Stage::Element || values_[condition].uses != 1) return;
    StripOp op;
    bool negated = false;
    switch (values_[condition].op) {
      case StripOp::LtI: op = StripOp::SelectLess; break;
      case StripOp::LeI: op = StripOp::SelectLessEqual; break;
      case StripOp::EqI: op = StripOp::SelectEqual; break;
      case StripOp::NeI: op = StripOp::SelectEqual, negated = true; break;
      default: return;  // another condition
    }
    const std::uint32_t a = arg(condition, 0), b = arg(condition, 1);
    if (splat(a) == splat(b)) return;
    const std::uint32_t x = arg(v, 1), y = arg(v, 2);
    become(v, op, {a, b, negated ? y : x, negated ? x : y});
  }

  void and_compare(std::uint32_t v) {
    for (const std::size_t i : {std::size_t{0}, std::size_t{1}}) {
      const std::uint32_t condition = arg(v, i), other = arg(v, 1 - i);
      if (values_[condition].stage != Stage::Element || values_[condition].uses != 1) continue;
      StripOp op;
      switch (values_[condition].op) {
        case StripOp::LtI: op = StripOp::AndLess; break;
        case StripOp::LeI: op = StripOp::AndLessEqual; break;
        case StripOp::EqI: op = StripOp::AndEqual; break;
        default: continue;  // another condition
      }
      const std::uint32_t a = arg(condition, 0), b = arg(condition, 1);
      if (splat(a) == splat(b) || splat(other)) continue;
      become(v, op, {a, b, other});
      return;
    }
  }

  ValueGraph& values_;
  IntegerSlopes& slopes_;
  std::uint32_t k_ = no_value;
};

}  // namespace

void fuse(ValueGraph& values, IntegerSlopes& slopes) { Fusion(values, slopes).run(); }

}  // namespace fovea::cpu

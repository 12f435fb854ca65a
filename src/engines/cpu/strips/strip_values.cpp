#include "engines/cpu/strips/strip_values.h"

#include <cstdlib>

namespace fovea::cpu {

using ir::Stage;

std::uint32_t ValueGraph::add(StripOp op, std::vector<std::uint32_t> args) {
  Value value;
  value.op = op;
  value.exact = true;  // i32
  for (const std::uint32_t arg : args) {
    if (all[arg].stage == Stage::Row) value.stage = Stage::Row;
  }
  value.args = std::move(args);
  all.push_back(std::move(value));
  return static_cast<std::uint32_t>(all.size() - 1);
}

void ValueGraph::count_uses() {
  for (Value& value : all) value.uses = 0;
  std::vector<std::uint32_t> waiting;
  const auto use = [&](std::uint32_t v) {
    if (v != no_value && all[v].uses++ == 0) waiting.push_back(v);
  };
  for (const std::uint32_t root : roots) use(root);
  while (!waiting.empty()) {
    const std::uint32_t v = waiting.back();
    waiting.pop_back();
    for (const std::uint32_t arg : all[v].args) use(arg);
  }
}

ValueGraph values_of(const ir::Tape& tape, std::size_t second_phase) {
  ValueGraph values;
  values.second_phase = second_phase;
  std::vector<std::uint32_t> held(tape.registers.size(), no_value);  // by register
  for (const ir::Instruction& instruction : tape.code) {
    Value value;
    value.op = strip_op(instruction.op);
    value.stage = instruction.stage;
    value.exact = instruction.exact;
    value.payload = instruction.payload;
    const ir::OpInfo& row = ir::info(instruction.op);
    if (row.form == ir::Form::Load) {
      for (std::uint32_t i = 0; i < instruction.indices; ++i) {
        value.args.push_back(held[tape.indices[instruction.first_index + i].source]);
      }
    } else {
      for (std::size_t i = 0; i < row.arity(); ++i) {
        value.args.push_back(held[instruction.source[i]]);
      }
    }
    held[instruction.target] = static_cast<std::uint32_t>(values.all.size());
    values.all.push_back(std::move(value));
  }
  for (const std::uint32_t output : tape.outputs) values.roots.push_back(held[output]);
  values.count_uses();
  return values;
}

namespace {

constexpr std::int32_t most_slope = 1 << 10;
constexpr std::uint32_t most_rest = 16;

std::optional<std::int32_t> small(std::int64_t slope) {
  if (std::abs(slope) > most_slope) return std::nullopt;
  return static_cast<std::int32_t>(slope);
}

}  // namespace

IntegerSlopes::IntegerSlopes(ValueGraph& values) : values_(values) {
  for (std::uint32_t v = 0; v < values.all.size(); ++v) {
    std::uint32_t size = 1;
    for (const std::uint32_t arg : values[v].args) {
      if (!is_splat(values[arg].stage)) size += sizes_[arg];
    }
    sizes_.push_back(size);
    slopes_.push_back(size <= most_rest ? find(v) : std::nullopt);
  }
}

std::optional<std::int32_t> IntegerSlopes::slope_in(std::uint32_t v, Stage stage) const {
  const Stage own = values_[v].stage;
  if (own == Stage::Uniform || (own == Stage::Row && stage != Stage::Row)) return 0;
  return slopes_[v];
}

std::optional<std::int32_t> IntegerSlopes::find(std::uint32_t v) const {
  const Value& value = values_[v];
  if (value.op == StripOp::IndexQ || value.op == StripOp::IndexK) return 1;
  if (value.stage == Stage::Uniform) return std::nullopt;
  const auto of = [&](std::size_t i) { return slope_in(value.args[i], value.stage); };
  switch (value.op) {
    case StripOp::AddI: return of(0) && of(1) ? small(std::int64_t{*of(0)} + *of(1)) : std::nullopt;
    case StripOp::SubI: return of(0) && of(1) ? small(std::int64_t{*of(0)} - *of(1)) : std::nullopt;
    case StripOp::NegI: return of(0) ? small(-std::int64_t{*of(0)}) : std::nullopt;
    default: return std::nullopt;  // everything else is not linear, or not worth it
  }
}

std::uint32_t IntegerSlopes::rest(std::uint32_t v) {
  if (is_splat(values_[v].stage)) return v;
  const StripOp op = values_[v].op;
  if (op == StripOp::IndexK) return no_value;
  if (op == StripOp::Line) return values_[v].args[1];
  const std::uint32_t a = rest(values_[v].args[0]);
  if (op == StripOp::NegI) return a == no_value ? a : values_.add(StripOp::NegI, {a});
  const std::uint32_t b = rest(values_[v].args[1]);
  if (b == no_value) return a;
  if (a != no_value) return values_.add(op, {a, b});
  return op == StripOp::AddI ? b : values_.add(StripOp::NegI, {b});
}

void plan_loads(ValueGraph& values, IntegerSlopes& slopes) {
  const std::size_t count = values.all.size();  // rest() adds values, but no loads
  for (std::uint32_t v = 0; v < count; ++v) {
    if (!is_load(values[v].op) || values[v].uses == 0) continue;
    const Stage stage = values[v].stage;
    for (std::size_t i = 0; i < values[v].args.size(); ++i) {
      const std::uint32_t index = values[v].args[i];
      const Stage from = values[index].stage;
      LoadIndex form;
      const bool fixed = from == Stage::Uniform || (stage == Stage::Element && from == Stage::Row);
      const std::optional<std::int32_t> slope = fixed ? std::nullopt : slopes.slope(index);
      if (!fixed) form.form = slope ? LoadIndex::Form::Line : LoadIndex::Form::Free;
      if (slope) form.slope = *slope;
      if (slope && stage == Stage::Element) {
        const std::uint32_t rest = slopes.rest(index);
        form.has_source = rest != no_value;
        values[v].args[i] = rest;
      }
      values[v].forms.push_back(form);
    }
  }
}

}  // namespace fovea::cpu

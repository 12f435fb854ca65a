#include "engines/cpu/strips/strip_code.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "engines/cpu/strips/strip_fuse.h"
#include "engines/cpu/strips/strip_values.h"
#include "ir/tape.h"

namespace fovea::cpu {
namespace {

using ir::Stage;

constexpr std::size_t at(Stage stage) { return static_cast<std::size_t>(stage); }

class StripCompiler {
 public:
  StripCompiler(ValueGraph values, bool in_place, const KernelTable& kernels)
      : values_(std::move(values)), in_place_(in_place) {
    code_.kernels = kernels;
  }

  StripCode run() {
    put_in_order();
    if (in_place_) keep_scores();
    find_last_reads();
    operands_.resize(values_.all.size());
    registers_.resize(values_.all.size());
    has_register_.assign(values_.all.size(), false);
    for (std::size_t i = 0; i < order_.size(); ++i) emit(order_[i], i);
    for (const std::uint32_t root : values_.roots) code_.roots.push_back(operands_[root]);
    if (in_place_) store_in_place();
    return std::move(code_);
  }

 private:
  // What the roots before the second phase need.
  std::vector<bool> find_first_phase() const {
    std::vector<bool> needed(values_.all.size(), false);
    std::vector<std::uint32_t> waiting(
        values_.roots.begin(), values_.roots.begin() + std::ptrdiff_t(values_.second_phase));
    while (!waiting.empty()) {
      const std::uint32_t v = waiting.back();
      waiting.pop_back();
      if (v == no_value || needed[v]) continue;
      needed[v] = true;
      waiting.insert(waiting.end(), values_[v].args.begin(), values_[v].args.end());
    }
    return needed;
  }

  // Stage after stage, phase after phase, arguments first.
  void put_in_order() {
    in_first_ = find_first_phase();
    for (const Stage stage : {Stage::Uniform, Stage::Row, Stage::Column, Stage::Element}) {
      for (const bool first : {true, false}) {
        for (std::uint32_t v = 0; v < values_.all.size(); ++v) {
          const Value& value = values_[v];
          if (value.uses == 0 || value.stage != stage) continue;
          const bool now = stage != Stage::Element ? first : in_first_[v] == first;
          if (now) order_.push_back(v);
        }
      }
    }
  }

  bool second_phase(std::uint32_t v) const {
    return values_[v].stage == Stage::Element && !in_first_[v];
  }

  // The scores are overwritten at the end of the first phase. Steps of the second phase read a
  // copy, made before anything else.
  void keep_scores() {
    const auto score = std::ranges::find_if(
        order_, [&](std::uint32_t v) { return values_[v].op == StripOp::Score; });
    if (score == order_.end()) return;
    const std::uint32_t old = *score;
    const auto copy = static_cast<std::uint32_t>(values_.all.size());
    bool needed = false;
    const auto redirect = [&](std::uint32_t& reader) {
      if (reader != old) return;
      reader = copy;
      needed = true;
    };
    for (const std::uint32_t v : order_) {
      if (!second_phase(v)) continue;
      for (std::uint32_t& arg : values_[v].args) redirect(arg);
    }
    for (std::size_t i = 1; i < values_.roots.size(); ++i) redirect(values_.roots[i]);
    if (!needed) return;
    Value value;
    value.op = StripOp::Copy;
    value.stage = Stage::Element;
    value.args = {old};
    values_.all.push_back(std::move(value));
    in_first_.push_back(true);
    std::erase(order_, old);
    const auto first = std::ranges::find_if(
        order_, [&](std::uint32_t v) { return values_[v].stage == Stage::Element; });
    order_.insert(first, {old, copy});
  }

  // The last instruction that reads a value, if its register is free after that; `forever` for
  // roots and for what later stages read.
  void find_last_reads() {
    last_read_.assign(values_.all.size(), 0);
    for (std::size_t i = 0; i < order_.size(); ++i) {
      for (const std::uint32_t arg : values_[order_[i]].args) {
        if (arg == no_value) continue;
        const bool later = values_[arg].stage != values_[order_[i]].stage;
        if (later || last_read_[arg] == forever) {
          last_read_[arg] = forever;
        } else {
          last_read_[arg] = i;
        }
      }
    }
    direct_ = in_place_ && stores_directly();
    for (std::size_t i = direct_ ? 1 : 0; i < values_.roots.size(); ++i) {
      last_read_[values_.roots[i]] = forever;
    }
  }

  // Whether root 0 can be computed straight into the scores: no later step reads those, and no
  // later step reads root 0.
  bool stores_directly() const {
    const std::uint32_t root = values_.roots[0];
    const Value& value = values_[root];
    if (value.stage != Stage::Element || is_load(value.op) || value.op == StripOp::Score ||
        value.op == StripOp::Grad) {
      return false;
    }
    if (std::ranges::count(values_.roots, root) > 1) return false;
    bool written = false;
    for (const std::uint32_t v : order_) {
      for (const std::uint32_t arg : values_[v].args) {
        if (arg == no_value) continue;
        if (written && values_[arg].op == StripOp::Score) return false;
        if (arg == root && second_phase(v)) return false;
      }
      written = written || v == root;
    }
    return true;
  }

  void emit(std::uint32_t v, std::size_t position) {
    const Value& value = values_[v];
    if (value.op == StripOp::Score || value.op == StripOp::Grad) {
      operands_[v] = {value.op == StripOp::Score ? Storage::Score : Storage::Grad, 0};
      return;
    }
    release_arguments(value, position);
    const bool direct = direct_ && v == values_.roots[0];
    const StripOperand own =
        direct ? StripOperand{Storage::Score, 0}
               : StripOperand{static_cast<Storage>(value.stage), take_register(value.stage)};
    operands_[v] = own;
    has_register_[v] = !direct;
    registers_[v] = own.number;
    switch (value.stage) {
      case Stage::Uniform: emit_scalar(value, own.number); break;
      case Stage::Row: code_.row.push_back(vector_step(v, own)); break;
      case Stage::Column: code_.column.push_back(vector_step(v, own)); break;
      case Stage::Element: code_.phase[second_phase(v)].push_back(vector_step(v, own)); break;
    }
  }

  void release_arguments(const Value& value, std::size_t position) {
    for (const std::uint32_t arg : value.args) {
      if (arg == no_value || last_read_[arg] != position || !has_register_[arg]) continue;
      has_register_[arg] = false;  // freed once, though it may be an operand twice
      free_[at(values_[arg].stage)].push_back(registers_[arg]);
    }
  }

  std::uint32_t take_register(Stage stage) {
    std::vector<std::uint32_t>& free = free_[at(stage)];
    if (free.empty()) return code_.registers[at(stage)]++;
    const std::uint32_t taken = free.back();
    free.pop_back();
    return taken;
  }

  void emit_scalar(const Value& value, std::uint32_t target) {
    ScalarStep step;
    step.op = static_cast<ir::Op>(value.op);
    step.target = target;
    step.payload = value.payload;
    if (is_load(value.op)) {
      step.first_index = static_cast<std::uint32_t>(code_.scalar_indices.size());
      step.indices = static_cast<std::uint32_t>(value.args.size());
      for (const std::uint32_t arg : value.args) {
        code_.scalar_indices.push_back(operands_[arg].number);
      }
    } else {
      for (std::size_t i = 0; i < value.args.size(); ++i) {
        step.source[i] = operands_[value.args[i]].number;
      }
    }
    code_.uniform.push_back(step);
  }

  VectorStep vector_step(std::uint32_t v, StripOperand own) {
    const Value& value = values_[v];
    VectorStep step;
    step.out = own;
    step.mode = value.mode;
    if (value.op == StripOp::IndexQ || value.op == StripOp::IndexK) {
      step.kind = VectorStep::Kind::Positions;
    } else if (is_load(value.op)) {
      step.kind = VectorStep::Kind::Load;
      step.load = add_load(v, own);
    } else {
      int kinds = 0;
      step.operands = static_cast<std::uint8_t>(value.args.size());
      for (std::size_t i = 0; i < value.args.size(); ++i) {
        step.in[i] = operands_[value.args[i]];
        const Stage from = values_[value.args[i]].stage;
        const bool one = from == Stage::Uniform || (from == Stage::Row && value.stage != from);
        kinds |= (one ? 1 : 0) << i;
      }
      const StripKernels& kernels = *code_.kernels.strips;
      const auto& table = value.exact ? kernels.exact : kernels.fast;
      step.kernel = table[static_cast<std::size_t>(value.op)][kinds];
    }
    if (step.kind == VectorStep::Kind::Kernel && step.kernel == nullptr) {
      throw InternalError("no kernel for strip operation " +
                          std::to_string(static_cast<int>(value.op)));
    }
    return step;
  }

  std::uint32_t add_load(std::uint32_t v, StripOperand own) {
    const Value& value = values_[v];
    StripLoad load;
    load.stage = value.stage;
    load.slot = value.payload;
    load.first_index = static_cast<std::uint32_t>(code_.indices.size());
    load.indices = static_cast<std::uint32_t>(value.args.size());
    load.target = own;
    for (std::size_t i = 0; i < value.args.size(); ++i) {
      LoadIndex index = value.forms[i];
      if (value.args[i] != no_value) index.source = operands_[value.args[i]];
      code_.indices.push_back(index);
    }
    if (value.stage == Stage::Element) {
      load.element = code_.element_loads++;
      operands_[v] = {Storage::Load, load.element};
    }
    code_.loads.push_back(load);
    return static_cast<std::uint32_t>(code_.loads.size() - 1);
  }

  // Copies root 0 over the scores, if it was not computed there.
  void store_in_place() {
    const StripOperand root = code_.roots[0];
    code_.roots[0] = {Storage::Score, 0};
    if (root.storage == Storage::Score) return;
    VectorStep step;
    step.operands = 1;
    step.in[0] = root;
    step.out = {Storage::Score, 0};
    const bool splat = root.storage == Storage::Uniform || root.storage == Storage::Row;
    step.kernel = code_.kernels.strips->exact[static_cast<std::size_t>(StripOp::Copy)][splat];
    code_.phase[0].push_back(step);
  }

  static constexpr std::size_t forever = ~std::size_t{0};

  ValueGraph values_;
  const bool in_place_;
  bool direct_ = false;
  std::vector<bool> in_first_, has_register_;
  std::vector<std::uint32_t> order_, registers_;
  std::vector<std::size_t> last_read_;
  std::vector<StripOperand> operands_;
  std::array<std::vector<std::uint32_t>, ir::stage_count> free_;
  StripCode code_;
};

}  // namespace

StripCode compile_strips(const StripProgram::Roots& roots, const KernelTable& kernels) {
  ValueGraph values = values_of(ir::lower(roots.all), roots.second_phase);
  IntegerSlopes slopes(values);
  fuse(values, slopes);
  plan_loads(values, slopes);
  values.count_uses();
  return StripCompiler(std::move(values), roots.in_place, kernels).run();
}

}  // namespace fovea::cpu

#include "bound_program.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "array.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/eval.h"
#include "ir/load_range.h"
#include "ir/parse.h"
#include "ir/print.h"
#include "ir/topology.h"

namespace fovea::cli {
namespace {

std::int64_t extent_of(const ir::Extent& extent, const Line& line) {
  switch (extent.kind) {
    case ir::Extent::Kind::Number: return extent.number;
    case ir::Extent::Kind::B: return line.b;
    case ir::Extent::Kind::H: return line.h;
    case ir::Extent::Kind::Hkv: return line.hkv;
    case ir::Extent::Kind::Sq: return line.sq;
    case ir::Extent::Kind::Skv: return line.skv;
  }
  return 0;
}

std::vector<std::int64_t> extents_of(const ir::TensorDecl& tensor, const Line& line) {
  std::vector<std::int64_t> out;
  for (const ir::Extent& extent : tensor.extents) out.push_back(extent_of(extent, line));
  return out;
}

// The smallest extent that values of this tensor are used to index; 8 where they index nothing.
std::int64_t index_bound(const ir::Program& program, std::uint32_t slot, const Line& line) {
  std::int64_t bound = 0;
  const ir::Expr roots[] = {program.mod(), program.mask(), program.bprop()};
  for (const ir::Node* node : ir::operands_first(roots).nodes) {
    if (ir::info(node->op()).form != ir::Form::Load) continue;
    for (std::size_t i = 0; i < node->args().size(); ++i) {
      const ir::Expr& index = node->arg(i);
      const bool uses = ir::info(index->op()).form == ir::Form::Load && index->slot() == slot;
      if (!uses) continue;
      const std::int64_t extent = extent_of(program.tensors()[node->slot()].extents[i], line);
      bound = bound == 0 ? extent : std::min(bound, extent);
    }
  }
  return bound == 0 ? 8 : bound;
}

std::int32_t narrow(std::int64_t x) { return static_cast<std::int32_t>(x); }

}  // namespace

struct BoundProgram::State {
  Line line;
  ir::Program program;
  std::vector<Array> arrays;
  std::vector<ir::TensorView> tensors;
  std::vector<ir::ScalarValue> scalars;
  std::vector<ir::Range> scalar_ranges;
  std::unique_ptr<ir::Evaluator<float>> mask, mod;
  std::unique_ptr<ir::Ranges> ranges;
  std::unique_ptr<ir::LoadRanges> load_ranges;
  ir::Ranges::Scratch scratch;

  explicit State(const Line& from) : line(from), program(ir::parse_program(from.program)) {
    for (std::uint32_t slot = 0; slot < program.tensors().size(); ++slot) make_tensor(slot);
    for (const ir::ScalarDecl& scalar : program.scalars()) make_scalar(scalar);
    if (program.mod()) mod = std::make_unique<ir::Evaluator<float>>(program.mod());
    if (!program.mask()) return;
    mask = std::make_unique<ir::Evaluator<float>>(program.mask());
    ranges = std::make_unique<ir::Ranges>(program.mask());
    load_ranges = std::make_unique<ir::LoadRanges>(*ranges);
  }

  void make_tensor(std::uint32_t slot) {
    const ir::TensorDecl& tensor = program.tensors()[slot];
    DataRequest request{tensor.name, std::string(dtype_name(tensor.dtype)), tensor.data,
                        extents_of(tensor, line), line.seed + slot,
                        index_bound(program, slot, line)};
    arrays.push_back(make_data(request));
    const Array& array = arrays.back();
    tensors.push_back(ir::TensorView::dense(array.bytes.data(), tensor.dtype, array.extents));
  }

  void make_scalar(const ir::ScalarDecl& scalar) {
    if (!scalar.value) {
      throw std::invalid_argument("scalar '" + scalar.name + "' needs a value, as in scalar=\"" +
                                  scalar.name + "=1\"");
    }
    const auto f = static_cast<float>(*scalar.value);
    const std::int32_t i = scalar.type == ir::Type::I32 ? narrow(std::int64_t(*scalar.value)) : 0;
    scalars.push_back({f, i});
    scalar_ranges.push_back({ir::IntInterval::of(i), ir::RealInterval::of(f), {}});
  }

  ir::Point<float> point(const Position& at, float score) const {
    ir::Point<float> p;
    p.score = score;
    p.b = at.b, p.h = at.h, p.q = at.q, p.k = at.k;
    p.B = narrow(line.b), p.H = narrow(line.h), p.Hkv = narrow(line.hkv);
    p.Sq = narrow(line.sq), p.Skv = narrow(line.skv);
    p.scalars = scalars;
    p.tensors = tensors;
    return p;
  }
};

BoundProgram::BoundProgram(const Line& line) : state_(std::make_unique<State>(line)) {}
BoundProgram::~BoundProgram() = default;

bool BoundProgram::has_mask() const { return state_->mask != nullptr; }
bool BoundProgram::has_mod() const { return state_->mod != nullptr; }

std::string BoundProgram::mask_text() const {
  return ir::print(state_->program.mask(), state_->program.declarations());
}
std::string BoundProgram::mod_text() const {
  return ir::print(state_->program.mod(), state_->program.declarations());
}

bool BoundProgram::is_additive() const {
  return ir::differentiate(state_->program.mod()).score == ir::constant(1.0f);
}

bool BoundProgram::keep(const Position& at) const {
  (*state_->mask)(state_->point(at, 0));
  return state_->mask->value().b;
}

float BoundProgram::modified(const Position& at, float score) const {
  (*state_->mod)(state_->point(at, score));
  return state_->mod->value().f;
}

TileClass BoundProgram::classify(const Tile& tile) const {
  const Line& line = state_->line;
  ir::Box box;
  box.b = ir::IntInterval::of(tile.b), box.h = ir::IntInterval::of(tile.h);
  box.q = {tile.q0, tile.q1 - 1}, box.k = {tile.k0, tile.k1 - 1};
  box.B = ir::IntInterval::of(line.b), box.H = ir::IntInterval::of(line.h);
  box.Hkv = ir::IntInterval::of(line.hkv);
  box.Sq = ir::IntInterval::of(line.sq), box.Skv = ir::IntInterval::of(line.skv);
  box.scalars = state_->scalar_ranges;
  const std::vector<ir::Range> loads = state_->load_ranges->find(box, state_->tensors);
  box.loads = loads;
  switch (state_->ranges->classify(box, state_->scratch)) {
    case ir::TileClass::Empty: return TileClass::Empty;
    case ir::TileClass::Full: return TileClass::Full;
    case ir::TileClass::Mixed: return TileClass::Mixed;
  }
  return TileClass::Mixed;
}

}  // namespace fovea::cli

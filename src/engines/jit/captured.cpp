#include "engines/jit/captured.h"

#include <algorithm>

#include "attention/engine.h"
#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/stages.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"

namespace fovea::jit {
namespace {

using ir::Depends;
using ir::Expr;

bool is_zero(const Expr& e) { return e->op() == ir::Op::ConstF && e->float_value() == 0; }

bool changes_with_q(const Expr& e) { return ir::any(e->depends(), Depends::Q | Depends::Score); }
bool changes_with_k(const Expr& e) { return ir::any(e->depends(), Depends::K | Depends::Score); }
bool is_uniform(const Expr& e) { return !changes_with_q(e) && !changes_with_k(e); }

// The index that is k itself, of a load with one index q, one index k and others that are uniform;
// -1: it is another load.
int plain_k(const std::vector<Expr>& indices) {
  int q = -1, k = -1;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (is_uniform(indices[i])) continue;
    int& at = indices[i]->op() == ir::Op::IndexQ ? q : k;
    const bool plain = indices[i]->op() == ir::Op::IndexQ || indices[i]->op() == ir::Op::IndexK;
    if (!plain || at >= 0) return -1;
    at = static_cast<int>(i);
  }
  return q >= 0 ? k : -1;
}

// Whether what a score adds to the term's element is the gradient of that score: it can then be
// taken from a tile's dS.
bool is_in_tile(const CapturedTerm& term, const ir::Program& program) {
  return term.value == score_gradient(program);
}

// The same for terms whose element changes with k - q alone: dS is added up along its diagonals.
bool is_diagonal(const CapturedTerm& term, const ir::Program& program) {
  if (!is_in_tile(term, program)) return false;
  const ir::Order order = ir::operands_first(term.indices);
  const std::vector<bool> diagonal = find_diagonal(order);
  return std::ranges::all_of(term.indices, [&](const Expr& index) {
    return is_uniform(index) || diagonal[order.number.find(index.get())];
  });
}

}  // namespace

CapturedSums::CapturedSums(const Problem& baked)
    : deterministic_(baked.deterministic),
      hopper_keys_(device::backward_tile_keys(static_cast<int>(baked.sizes.d),
                                              static_cast<int>(baked.sizes.dv))) {
  if (baked.direction != Direction::Backward) return;
  const ir::Program& program = baked.program;
  for (std::uint32_t slot = 0; slot < program.tensors().size(); ++slot) {
    if (wanted(baked.want_tensors, slot)) targets_.push_back({true, slot});
  }
  for (std::uint32_t slot = 0; slot < program.scalars().size(); ++slot) {
    if (wanted(baked.want_scalars, slot)) targets_.push_back({false, slot});
  }
  if (targets_.empty()) return;
  const ir::Gradients derived =
      program.mod() ? ir::differentiate(program.mod(), ir::leaf(ir::Op::Grad)) : ir::Gradients{};
  for (std::size_t i = 0; i < targets_.size(); ++i) {
    const auto stable = [&](const Expr& gradient) {
      return ir::stable_gradient(program.mod(), ir::simplify(gradient));
    };
    for (const ir::LoadGradient& of : derived.loads) {
      if (!targets_[i].is_tensor || of.load->slot() != targets_[i].slot) continue;
      add_term(i, stable(of.gradient), {of.load->args().begin(), of.load->args().end()});
    }
    for (const ir::ScalarGradient& of : derived.scalars) {
      if (!targets_[i].is_tensor && of.slot == targets_[i].slot) {
        add_term(i, stable(of.gradient), {});
      }
    }
  }
  for (std::size_t i = 0; i < targets_.size(); ++i) arrange(i, program);
}

void CapturedSums::add_term(std::size_t target, const Expr& value, std::vector<Expr> indices) {
  if (is_zero(value)) return;
  terms_.push_back({target, TermKind::Uniform, "captured" + std::to_string(terms_.size()), value,
                    std::move(indices)});
}

// How a target's sums lie and are kept, and how its terms get there.
void CapturedSums::arrange(std::size_t target, const ir::Program& program) {
  WantedGradient& to = targets_[target];
  std::vector<CapturedTerm*> terms;
  for (CapturedTerm& term : terms_) {
    if (term.target == target) terms.push_back(&term);
  }
  const int rank = to.is_tensor ? static_cast<int>(program.tensors()[to.slot].extents.size()) : 0;
  const auto is_outer = [&](int i) {
    return std::ranges::all_of(terms, [&](const CapturedTerm* term) {
      return is_uniform(term->indices[static_cast<std::size_t>(i)]);
    });
  };
  int last = -1;
  for (const CapturedTerm* term : terms) last = last < 0 ? plain_k(term->indices) : last;
  for (int i = 0; i < rank; ++i) {
    if (is_outer(i)) to.order.push_back(i);
  }
  to.outer = static_cast<int>(to.order.size());
  for (int i = 0; i < rank; ++i) {
    if (!is_outer(i) && i != last) to.order.push_back(i);
  }
  if (last >= 0) to.order.push_back(last);

  bool all_uniform = true;
  for (CapturedTerm* term : terms) {
    const bool q = std::ranges::any_of(term->indices, changes_with_q);
    const bool k = std::ranges::any_of(term->indices, changes_with_k);
    const bool element = last >= 0 && plain_k(term->indices) == last;
    // Exact sums must not be made of dS, which is rounded.
    const bool cells = element && !deterministic_ && is_in_tile(*term, program);
    term->kind = !q && !k                      ? TermKind::Uniform
                 : !k                          ? TermKind::Row
                 : !q                          ? TermKind::Column
                 : cells                       ? TermKind::Cells
                 : element                     ? TermKind::Element
                 : is_diagonal(*term, program) ? TermKind::Diagonal
                                               : TermKind::Gather;
    all_uniform = all_uniform && term->kind == TermKind::Uniform;
  }
  if (terms.empty()) return;
  to.kept = deterministic_ ? device::SumsKept::Exact
            : all_uniform  ? device::SumsKept::F64
                           : device::SumsKept::F32;
}

std::vector<ExtraRoot> CapturedSums::roots() const {
  std::vector<ExtraRoot> out;
  for (const CapturedTerm& term : terms_) {
    out.push_back({term.name, term.value});
    for (std::size_t i = 0; i < term.indices.size(); ++i) {
      out.push_back({term.name + "_" + std::to_string(i), term.indices[i]});
    }
  }
  return out;
}

int CapturedSums::tables() const {
  return static_cast<int>(std::ranges::count_if(terms_, [](const CapturedTerm& term) {
    return term.kind == TermKind::Diagonal || term.kind == TermKind::Gather;
  }));
}

int CapturedSums::table_room() const {
  constexpr int most = 4096;  // 16 KiB
  return deterministic_ || tables() == 0 ? 0 : most / tables() / 4 * 4;
}

int CapturedSums::shared_bytes() const { return 4 * table_room() * tables(); }

// There is little room: device/hopper/backward.h fills shared memory with tiles.
int CapturedSums::hopper_table_room() const {
  constexpr int most = 1024;
  return deterministic_ || tables() == 0 ? 0 : most / tables() / 4 * 4;
}

// What the classes of device/hopper/captured.h keep in shared memory.
int CapturedSums::hopper_bytes_of(const CapturedTerm& term) const {
  switch (term.kind) {
    case TermKind::Uniform: return 4 * device::backward_key_threads;
    case TermKind::Column: return 8 * device::backward_key_threads;
    case TermKind::Diagonal: return 4 * hopper_table_room();
    case TermKind::Row:
    case TermKind::Element:
    case TermKind::Cells: return 0;
    case TermKind::Gather: break;  // why_not_hopper
  }
  return 0;
}

// All terms share the sums along diagonals.
int CapturedSums::hopper_diagonal_bytes() const {
  const bool any = std::ranges::any_of(
      terms_, [](const CapturedTerm& term) { return term.kind == TermKind::Diagonal; });
  return any ? device::backward_diagonal_bytes(hopper_keys_) : 0;
}

int CapturedSums::hopper_shared_bytes() const {
  int bytes = hopper_diagonal_bytes();
  for (const CapturedTerm& term : terms_) bytes += hopper_bytes_of(term);
  return bytes;
}

// Sums of dS leave out what has a probability of 0. If dS is P times the score's own gradient, what
// multiplies that gradient says so, too.
bool CapturedSums::hopper_reads_p() const {
  return !std::ranges::all_of(terms_, [](const CapturedTerm& term) {
    const bool in_ds = term.kind == TermKind::Diagonal || term.kind == TermKind::Cells;
    return in_ds && term.value->op() == ir::Op::Grad;
  });
}

// That kernel overwrites scores by their gradients, so no term may read both.
std::string CapturedSums::why_not_hopper() const {
  const auto reads = [](const Expr& e) { return ir::any(e->depends(), Depends::Score); };
  for (const CapturedTerm& term : terms_) {
    if (term.kind == TermKind::Diagonal || term.kind == TermKind::Cells) continue;
    if (term.kind == TermKind::Gather) {
      return "of tables they add up the gradients of those by k - q alone";
    }
    if (reads(term.value) || std::ranges::any_of(term.indices, reads)) {
      return "the gradient of a captured tensor changes with the score";
    }
  }
  return "";
}

}  // namespace fovea::jit

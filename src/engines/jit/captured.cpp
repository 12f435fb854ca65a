#include "engines/jit/captured.h"

#include <algorithm>

#include "attention/host_bake.h"
#include "engines/jit/device/hopper/backward_layout.h"
#include "engines/jit/tile_values.h"
#include "ir/build.h"
#include "ir/diff.h"
#include "ir/simplify.h"
#include "ir/stable.h"

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

// Whether every score adds to a term's element what it adds to the gradient of the plain score: a
// tile's dS has it.
bool is_in_tile(const CapturedTerm& term, const ir::Program& program) {
  return term.value == score_gradient(program);
}

// Whether a term's element changes with k - q alone: a tile's dS is added up along its diagonals.
bool is_diagonal(const CapturedTerm& term, const ir::Program& program) {
  if (!is_in_tile(term, program)) return false;
  const ir::Order order = ir::operands_first(term.indices);
  const std::vector<bool> diagonal = find_diagonal(order);
  return std::ranges::all_of(term.indices, [&](const Expr& index) {
    return is_uniform(index) || diagonal[order.number.find(index.get())];
  });
}

}  // namespace

Captured::Captured(const Problem& baked) : deterministic_(baked.deterministic) {
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

void Captured::add_term(std::size_t target, const Expr& value, std::vector<Expr> indices) {
  if (is_zero(value)) return;
  terms_.push_back({target, TermKind::Uniform, "captured" + std::to_string(terms_.size()), value,
                    std::move(indices)});
}

// How a target's sums lie and are kept, and how its terms get there.
void Captured::arrange(std::size_t target, const ir::Program& program) {
  CapturedTarget& to = targets_[target];
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
    // Exact sums are of what was not rounded.
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

std::vector<ExtraRoot> Captured::roots() const {
  std::vector<ExtraRoot> out;
  for (const CapturedTerm& term : terms_) {
    out.push_back({term.name, term.value});
    for (std::size_t i = 0; i < term.indices.size(); ++i) {
      out.push_back({term.name + "_" + std::to_string(i), term.indices[i]});
    }
  }
  return out;
}

int Captured::tables() const {
  return static_cast<int>(std::ranges::count_if(terms_, [](const CapturedTerm& term) {
    return term.kind == TermKind::Diagonal || term.kind == TermKind::Gather;
  }));
}

int Captured::table_room() const {
  constexpr int most = 4096;  // 16 KiB
  return deterministic_ || tables() == 0 ? 0 : most / tables() / 4 * 4;
}

int Captured::shared_bytes() const { return 4 * table_room() * tables(); }

// That kernel has no scores any more when it has their gradients.
std::string Captured::why_not_hopper() const {
  const auto reads = [](const Expr& e) { return ir::any(e->depends(), Depends::Score); };
  for (const CapturedTerm& term : terms_) {
    if (term.kind != TermKind::Element && term.kind != TermKind::Cells) {
      return "of captured tensors they compute the gradients of those by query and key alone";
    }
    if (reads(term.value)) return "the gradient of a captured tensor changes with the score";
  }
  return "";
}

namespace {

class TermText {
 public:
  TermText(const CapturedTerm& term, const CapturedTarget& target, const WordLayout& layout)
      : term_(term),
        target_(target),
        word_(target.is_tensor ? layout.tensor_gradients[target.slot]
                               : layout.scalar_gradients[target.slot]) {}

  std::string text(const std::string& name) const {
    const std::size_t outer = static_cast<std::size_t>(target_.outer), all = target_.order.size();
    std::string entries = "1ll";
    for (std::size_t i = outer; i < all; ++i) entries += " * " + extent("a", i);
    const std::string start = "  static FOVEA_DEVICE ";
    return "struct " + name + " {\n  static constexpr int word = " + std::to_string(word_) + ";\n" +
           start + "float value(const CapturedScore& x) { return " + call(term_.name) + "; }\n" +
           start + "long long outer(const CapturedScore& x) { return " + element(0, outer) +
           "; }\n" + start + "long long entries(const Arguments& a) { return " + entries + "; }\n" +
           start + "long long inner(const CapturedScore& x) { return " + element(outer, all) +
           "; }\n" + start + "long long last(const Arguments& a) { return " +
           (all > 0 ? extent("a", all - 1) : "1") + "; }\n" + start +
           "long long rows(const Arguments& a) { return " + rows_extent() + "; }\n};\n";
  }

 private:
  static std::string call(const std::string& function) {
    return "Formula::" + function + "(x.a, x.u, x.row, x.column, x.s, x.grad)";
  }
  std::string extent(const std::string& a, std::size_t i) const {
    return a + ".words[" + std::to_string(WordLayout::extent(word_, target_.order[i])) + "]";
  }
  // Of the index that is q; 0: none is.
  std::string rows_extent() const {
    for (std::size_t i = 0; i < target_.order.size(); ++i) {
      const auto index = static_cast<std::size_t>(target_.order[i]);
      if (term_.indices[index]->op() == ir::Op::IndexQ) return extent("a", i);
    }
    return "0";
  }
  // The element by indices number first to end - 1 of the order.
  std::string element(std::size_t first, std::size_t end) const {
    std::string at;
    for (std::size_t i = first; i < end; ++i) {
      const std::string index = "captured::clamped(" +
                                call(term_.name + "_" + std::to_string(target_.order[i])) + ", " +
                                extent("x.a", i) + ")";
      at = at.empty() ? index : "(" + at + ") * " + extent("x.a", i) + " + " + index;
    }
    return at.empty() ? "0" : at;
  }

  const CapturedTerm& term_;
  const CapturedTarget& target_;
  int word_;
};

std::string sums_type(device::SumsKept kept) {
  switch (kept) {
    case device::SumsKept::Nowhere: break;
    case device::SumsKept::F32: return "F32Sums";
    case device::SumsKept::F64: return "F64Sums";
    case device::SumsKept::Exact: return "ExactSums";
  }
  return {};
}

std::string member_type(TermKind kind, const std::string& term, const std::string& sums, int room) {
  const std::string arguments = term + ", " + sums;
  switch (kind) {
    case TermKind::Uniform: return "UniformTerm<" + arguments + ">";
    case TermKind::Row: return "RowTerm<" + arguments + ", rows>";
    case TermKind::Column: return "ColumnTerm<" + arguments + ", rows>";
    case TermKind::Element: return "ElementTerm<" + arguments + ", rows>";
    case TermKind::Cells: return "CellsTerm<" + term + ">";
    case TermKind::Diagonal: return "DiagonalTerm<" + arguments + ", " + std::to_string(room) + ">";
    case TermKind::Gather:
      return "GatherTerm<" + arguments + ", rows, " + std::to_string(room) + ">";
  }
  return {};
}

}  // namespace

std::string Captured::text(const WordLayout& layout) const {
  if (terms_.empty()) return "struct CapturedTerms : NoCaptured {};\n";
  std::string structs, members, begins, reads;
  int tables = 0;
  bool asks = false;  // for every score
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    const CapturedTerm& term = terms_[i];
    const CapturedTarget& target = targets_[term.target];
    const std::string number = std::to_string(i), name = "CapturedTerm" + number;
    structs += TermText(term, target, layout).text(name);
    members += "  " + member_type(term.kind, name, sums_type(target.kept), table_room()) + " t" +
               number + ";\n";
    begins += " t" + number + ".begin(at + " + std::to_string(4 * table_room() * tables) + ");";
    const bool diagonal = term.kind == TermKind::Diagonal;
    const bool in_tile = diagonal || term.kind == TermKind::Cells;
    if (diagonal || term.kind == TermKind::Gather) ++tables;
    asks = asks || !in_tile;
    if (in_tile) reads += " t" + number + ".read(a, u, ds, at, staged);";
  }
  // One of the functions that every term has.
  const auto each = [&](const std::string& function, const std::string& parameters,
                        const std::string& arguments) {
    std::string out = "  FOVEA_DEVICE void " + function + "(" + parameters + ") {";
    for (std::size_t i = 0; i < terms_.size(); ++i) {
      out += " t" + std::to_string(i) + "." + function + "(" + arguments + ");";
    }
    return out + " }\n";
  };
  const std::string uniform = "const Formula::Uniform& u";
  return structs + "struct CapturedTerms {\n  static constexpr bool any = true, reads_ds = " +
         (reads.empty() ? "false" : "true") + ", asks_scores = " + (asks ? "true" : "false") +
         ";\n"
         "  static constexpr int rows = 2 * BackwardShape<Config>::Scores::m;\n" +
         members + "  FOVEA_DEVICE void begin(Shared at) {" + begins + " }\n" +
         each("new_head", "const Arguments& a, " + uniform, "a, u") +
         each("begin_tile",
              "const Arguments& a, " + uniform + ", const Formula::Row* row, const ScorePlace& at",
              "a, u, row, at") +
         each("add", "const CapturedScore& x", "x") +
         each("end_tile",
              "const Arguments& a, " + uniform + ", const Formula::Row* row, const ScorePlace& at",
              "a, u, row, at") +
         "  template <class Tile> FOVEA_DEVICE void read(const Arguments& a, " + uniform +
         ", const Tile& ds, const TileBox& at, Shared staged) {" + reads + " }\n" +
         each("end", "const Arguments& a", "a") + "};\n";
}

std::string Captured::hopper_text(const WordLayout& layout) const {
  if (terms_.empty()) return "struct CapturedTerms { static constexpr bool any = false; };\n";
  if (!why_not_hopper().empty()) return {};
  std::string structs, members, begins, adds;
  for (std::size_t i = 0; i < terms_.size(); ++i) {
    const CapturedTarget& target = targets_[terms_[i].target];
    const std::string number = std::to_string(i), name = "CapturedTerm" + number;
    structs += TermText(terms_[i], target, layout).text(name);
    members += "  ElementTerm<" + name + ", " + sums_type(target.kept) + "> t" + number + ";\n";
    begins += " t" + number + ".begin_step(a, u, p);";
    adds += " t" + number + ".add(x);";
  }
  return structs + "struct CapturedTerms {\n  static constexpr bool any = true;\n" + members +
         "  FOVEA_DEVICE void begin_step(const Arguments& a, const Formula::Uniform& u, "
         "const CapturedPlace& p) {" +
         begins + " }\n  FOVEA_DEVICE void add(const CapturedScore& x) {" + adds + " }\n};\n";
}

}  // namespace fovea::jit

#include "engines/jit/captured_text.h"

#include <algorithm>

namespace fovea::jit {
namespace {

class TermText {
 public:
  TermText(const CapturedTerm& term, const WantedGradient& target, const WordLayout& layout)
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
  // The extent of the index that is q; 0 if none is.
  std::string rows_extent() const {
    for (std::size_t i = 0; i < target_.order.size(); ++i) {
      const auto index = static_cast<std::size_t>(target_.order[i]);
      if (term_.indices[index]->op() == ir::Op::IndexQ) return extent("a", i);
    }
    return "0";
  }
  // The element's number by indices first to end - 1 of the order.
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
  const WantedGradient& target_;
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

// The same for device/hopper/captured.h. `place`: where the term's part of shared memory begins.
std::string hopper_member_type(TermKind kind, const std::string& arguments, int place, int room) {
  const std::string placed = arguments + ", " + std::to_string(place);
  switch (kind) {
    case TermKind::Uniform: return "UniformTerm<" + placed + ">";
    case TermKind::Row: return "RowTerm<" + arguments + ">";
    case TermKind::Column: return "ColumnTerm<" + placed + ">";
    case TermKind::Element: return "ElementTerm<" + arguments + ">";
    case TermKind::Cells: return "CellsTerm<" + arguments.substr(0, arguments.find(',')) + ">";
    case TermKind::Diagonal: return "DiagonalTerm<" + placed + ", " + std::to_string(room) + ">";
    case TermKind::Gather: break;  // why_not_hopper
  }
  return {};
}

// Which kinds device/hopper/backward.h adds up from a step's dS, and which from single scores.
bool is_diagonal(TermKind kind) { return kind == TermKind::Diagonal; }
bool is_cells(TermKind kind) { return kind == TermKind::Cells; }
bool in_ds(TermKind kind) { return is_diagonal(kind) || is_cells(kind); }
bool by_score(TermKind kind) { return !in_ds(kind); }

// A function of struct CapturedTerms: that of the same name of all terms, or of those of a kind.
struct MemberFunction {
  std::string name, parameters, arguments;
};
std::string each_term(const CapturedSums& captured, const MemberFunction& function,
                      bool (*has)(TermKind) = nullptr) {
  std::string out = "  FOVEA_DEVICE void " + function.name + "(" + function.parameters + ") {";
  for (std::size_t i = 0; i < captured.terms().size(); ++i) {
    if (has != nullptr && !has(captured.terms()[i].kind)) continue;
    out += " t" + std::to_string(i) + "." + function.name + "(" + function.arguments + ");";
  }
  return out + " }\n";
}

// The element that all of a warp's diagonals add to, of the first term that has diagonals.
std::string first_diagonal(const CapturedSums& captured) {
  for (std::size_t i = 0; i < captured.terms().size(); ++i) {
    if (!is_diagonal(captured.terms()[i].kind)) continue;
    return "  FOVEA_DEVICE long long common_element() const { return t" + std::to_string(i) +
           ".common_element(); }\n";
  }
  return "";
}

}  // namespace

std::string captured_text(const CapturedSums& captured, const WordLayout& layout) {
  const std::vector<CapturedTerm>& terms = captured.terms();
  if (terms.empty()) return "struct CapturedTerms : NoCaptured {};\n";
  std::string structs, members, begins, reads;
  int tables = 0;
  bool asks = false;  // for every score
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const CapturedTerm& term = terms[i];
    const WantedGradient& target = captured.targets()[term.target];
    const std::string number = std::to_string(i), name = "CapturedTerm" + number;
    structs += TermText(term, target, layout).text(name);
    members += "  " + member_type(term.kind, name, sums_type(target.kept), captured.table_room()) +
               " t" + number + ";\n";
    begins +=
        " t" + number + ".begin(at + " + std::to_string(4 * captured.table_room() * tables) + ");";
    const bool diagonal = term.kind == TermKind::Diagonal;
    const bool in_tile = diagonal || term.kind == TermKind::Cells;
    if (diagonal || term.kind == TermKind::Gather) ++tables;
    asks = asks || !in_tile;
    if (in_tile) reads += " t" + number + ".read(a, u, ds, at, staged);";
  }
  const std::string head = "const Arguments& a, const Formula::Uniform& u";
  const std::string of_tile = head + ", const Formula::Row* row, const ScorePlace& at";
  return structs + "struct CapturedTerms {\n  static constexpr bool any = true, reads_ds = " +
         (reads.empty() ? "false" : "true") + ", asks_scores = " + (asks ? "true" : "false") +
         ";\n"
         "  static constexpr int rows = 2 * BackwardShape<Config>::Scores::m;\n" +
         members + "  FOVEA_DEVICE void begin(Shared at) {" + begins + " }\n" +
         each_term(captured, {"new_head", head, "a, u"}) +
         each_term(captured, {"begin_tile", of_tile, "a, u, row, at"}) +
         each_term(captured, {"add", "const CapturedScore& x", "x"}) +
         each_term(captured, {"end_tile", of_tile, "a, u, row, at"}) +
         "  template <class Tile> FOVEA_DEVICE void read(" + head +
         ", const Tile& ds, const TileBox& at, Shared staged) {" + reads + " }\n" +
         each_term(captured, {"end", "const Arguments& a", "a"}) + "};\n";
}

std::string hopper_captured_text(const CapturedSums& captured, const WordLayout& layout) {
  const std::vector<CapturedTerm>& terms = captured.terms();
  if (terms.empty()) {
    return "struct CapturedTerms {\n  static constexpr bool any = false, asks_scores = false, "
           "reads_ds = false, adds_diagonals = false, one_diagonal = false;\n};\n";
  }
  if (!captured.why_not_hopper().empty()) return {};
  std::string structs, members;
  int offset = captured.hopper_diagonal_bytes();
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const CapturedTerm& term = terms[i];
    const WantedGradient& target = captured.targets()[term.target];
    const std::string number = std::to_string(i), name = "CapturedTerm" + number;
    structs += TermText(term, target, layout).text(name);
    const std::string arguments = name + ", " + sums_type(target.kept);
    members += "  " +
               hopper_member_type(term.kind, arguments, offset, captured.hopper_table_room()) +
               " t" + number + ";\n";
    offset += captured.hopper_bytes_of(term);
  }
  const auto any = [&](bool (*has)(TermKind)) {
    const bool one = std::ranges::any_of(terms, [&](const auto& term) { return has(term.kind); });
    return std::string(one ? "true" : "false");
  };
  const auto diagonals =
      std::ranges::count_if(terms, [](const auto& term) { return is_diagonal(term.kind); });
  const std::string head = "const Arguments& a, const Formula::Uniform& u, ";
  const std::string of_step = head + "const CapturedPlace& p";
  return structs + "struct CapturedTerms {\n  static constexpr bool any = true, asks_scores = " +
         any(by_score) + ", reads_ds = " + any(in_ds) + ", adds_diagonals = " + any(is_diagonal) +
         ", one_diagonal = " + (diagonals == 1 ? "true" : "false") + ";\n" + members +
         each_term(captured, {"begin_step", of_step, "a, u, p"}, by_score) +
         each_term(captured, {"add", "const CapturedScore& x", "x"}, by_score) +
         each_term(captured, {"end_step", of_step, "a, u, p"}, by_score) +
         each_term(captured, {"end_head", of_step, "a, u, p"}, by_score) +
         each_term(captured, {"begin", "Team team", "team"}, is_diagonal) +
         each_term(captured,
                   {"read_cells", head + "Shared ds, const TileBox& box, Team team",
                    "a, u, ds, box, team"},
                   is_cells) +
         each_term(captured,
                   {"find_elements", head + "const TileBox& box, Shared staged, int first",
                    "a, u, box, staged, first"},
                   is_diagonal) +
         each_term(captured, {"add_diagonals", head + "const Floats2& sums", "a, u, sums"},
                   is_diagonal) +
         each_term(captured,
                   {"add_whole", head + "long long element, float sum", "a, u, element, sum"},
                   is_diagonal) +
         first_diagonal(captured) +
         each_term(captured, {"flush", head + "Team team", "a, u, team"}, is_diagonal) + "};\n";
}

}  // namespace fovea::jit

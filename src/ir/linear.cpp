#include "ir/linear.h"

#include <algorithm>
#include <cstdlib>

namespace fovea::ir {

bool LinearForm::small() const {
  constexpr std::size_t most_terms = 16;
  constexpr std::int64_t largest_offset = std::int64_t{1} << 40;
  return terms.size() <= most_terms && std::abs(offset) <= largest_offset &&
         std::ranges::all_of(terms, [](const LinearTerm& term) {
           return std::abs(term.coefficient) <= largest_coefficient;
         });
}

LinearForm combine(std::int64_t ca, const LinearForm& a, std::int64_t cb, const LinearForm& b) {
  LinearForm out{{}, ca * a.offset + cb * b.offset};
  std::vector<LinearTerm> all;
  for (const LinearTerm& term : a.terms) all.push_back({ca * term.coefficient, term.unknown});
  for (const LinearTerm& term : b.terms) all.push_back({cb * term.coefficient, term.unknown});
  std::ranges::sort(all, {}, &LinearTerm::unknown);
  for (const LinearTerm& term : all) {
    if (!out.terms.empty() && out.terms.back().unknown == term.unknown) {
      out.terms.back().coefficient += term.coefficient;
    } else {
      out.terms.push_back(term);
    }
  }
  std::erase_if(out.terms, [](const LinearTerm& term) { return term.coefficient == 0; });
  return out;
}

}  // namespace fovea::ir

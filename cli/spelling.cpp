#include "spelling.h"

#include <algorithm>

namespace fovea::cli {
namespace {

// Insertions, deletions and replacements that turn one word into the other; a swap of neighbours
// counts as one.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) {
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = std::max(i, j);
        continue;
      }
      const std::size_t replaced = table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      table[i][j] = std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, replaced});
      const bool swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swap) table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  }
  return table[a.size()][b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 64;  // nobody misspells a longer word
  if (word.empty() || word.size() > longest) return "";
  const std::string* best = nullptr;
  std::size_t fewest = 2 + word.size() / 4;  // more than that is another word
  for (const std::string& candidate : candidates) {
    const std::size_t count = edits(word, candidate);
    if (count < fewest && count < word.size()) {
      fewest = count;
      best = &candidate;
    }
  }
  return best != nullptr ? "; did you mean '" + *best + "'?" : "";
}

}  // namespace fovea::cli

// "Did you mean": the known name nearest to a misspelt one.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea {

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours; case is
// ignored), if it is near enough to be what was meant.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or an empty text: ready to be appended to an error.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace fovea

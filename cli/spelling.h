// "Did you mean" for the words of the command line itself: verbs, options, generators of test data.
// Keys and names inside a line are the library's: its own errors suggest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

// "; did you mean 'x'?", or nothing where no candidate is near: ready to be appended to an error.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace fovea::cli

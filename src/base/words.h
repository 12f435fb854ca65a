// The outer form of every line that Fovea reads: `key=value key="value with spaces" ...`. Also
// finds the known name that a misspelt one was meant to be. Does not know what keys mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea {

struct Word {
  std::string key;
  std::string value;         // without the quotes
  std::size_t position = 0;  // of the key in the line, for error messages
};

// Throws InvalidArgument for a word without '=', an open quote, a control character, or a line
// over the size limit. Inside quotes \" and \\ stand for themselves.
std::vector<Word> split_words(std::string_view line);

// `key=value`, quoted if needed: split_words gives it back.
std::string join_word(std::string_view key, std::string_view value);

// A line as a command that can be pasted into a shell, which FOVEA_VERBOSE prints:
// fovea run '<line>' --engine <engine>
std::string run_command(const std::string& line, const std::string& engine);

// "a, b, c"
std::string joined(const std::vector<std::string>& names);

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours; case is
// ignored), if it is near enough to be what was meant.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or an empty text: ready to be appended to an error.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace fovea

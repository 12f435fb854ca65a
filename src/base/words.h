// The outer form of every line that Fovea reads: `key=value key="value with spaces" ...`.
// Knows nothing of what the keys mean. Read by ir/program and attention/problem.
#pragma once

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

}  // namespace fovea

#include "base/words.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace fovea {
namespace {

constexpr std::size_t max_line = std::size_t{1} << 20;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_key_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

[[noreturn]] void fail(std::size_t position, const std::string& rule) {
  throw InvalidArgument("at character " + std::to_string(position + 1) + " of the line: " + rule);
}

class Splitter {
 public:
  explicit Splitter(std::string_view line) : line_(line) {}

  std::vector<Word> run() {
    std::vector<Word> words;
    for (skip_space(); at_ < line_.size(); skip_space()) words.push_back(word());
    return words;
  }

 private:
  void skip_space() {
    while (at_ < line_.size() && is_space(line_[at_])) ++at_;
  }

  Word word() {
    Word word;
    word.position = at_;
    while (at_ < line_.size() && is_key_char(line_[at_])) word.key += line_[at_++];
    if (word.key.empty() || at_ == line_.size() || line_[at_] != '=') {
      fail(word.position, "expected key=value, got '" + excerpt(word.position) + "'");
    }
    ++at_;
    word.value = at_ < line_.size() && line_[at_] == '"' ? quoted() : bare();
    return word;
  }

  std::string bare() {
    std::string value;
    while (at_ < line_.size() && !is_space(line_[at_])) {
      if (line_[at_] == '"') fail(at_, "a quote inside an unquoted value");
      value += line_[at_++];
    }
    return value;
  }

  std::string quoted() {
    const std::size_t open = at_++;
    std::string value;
    while (at_ < line_.size() && line_[at_] != '"') {
      const bool escape = line_[at_] == '\\' && at_ + 1 < line_.size() &&
                          (line_[at_ + 1] == '"' || line_[at_ + 1] == '\\');
      if (escape) ++at_;
      value += line_[at_++];
    }
    if (at_ == line_.size()) fail(open, "this quote is never closed");
    ++at_;
    if (at_ < line_.size() && !is_space(line_[at_])) fail(at_, "expected a space after the quote");
    return value;
  }

  std::string excerpt(std::size_t from) const {
    std::size_t to = from;
    while (to < line_.size() && !is_space(line_[to]) && to - from < 24) ++to;
    return std::string(line_.substr(from, to - from));
  }

  std::string_view line_;
  std::size_t at_ = 0;
};

bool needs_quotes(std::string_view value) {
  return value.empty() || std::any_of(value.begin(), value.end(),
                                      [](char c) { return is_space(c) || c == '"' || c == '\\'; });
}

}  // namespace

std::vector<Word> split_words(std::string_view line) {
  if (line.size() > max_line) {
    throw InvalidArgument("the line has " + std::to_string(line.size()) + " characters; at most " +
                          std::to_string(max_line) + " are read");
  }
  for (std::size_t i = 0; i < line.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(line[i]);
    if (c < 0x20 && !is_space(line[i])) {
      fail(i, "control character " + std::to_string(static_cast<int>(c)));
    }
  }
  return Splitter(line).run();
}

std::string join_word(std::string_view key, std::string_view value) {
  std::string out(key);
  out += '=';
  if (!needs_quotes(value)) return out.append(value);
  out += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string run_command(const std::string& line, const std::string& engine) {
  std::string quoted;
  for (const char c : line) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return "fovea run '" + quoted + "' --engine " + engine;
}

}  // namespace fovea

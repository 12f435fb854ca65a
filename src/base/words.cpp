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
      const std::string hint = word.position == 0 ? "" : "; a value with spaces needs quotes";
      fail(word.position, "expected key=value, got '" + excerpt(word.position) + "'" + hint);
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

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Optimal string alignment distance, three rows at a time.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& candidates) {
  constexpr std::size_t longest = 64;  // nobody misspells a longer name; bounds the work
  if (name.empty() || name.size() > longest) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = name.size() <= 3 ? 2 : 2 + name.size() / 4;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > longest) continue;
    const std::size_t d = distance(name, candidate);
    if (d < best_distance && d < std::max(name.size(), candidate.size())) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates) {
  const auto best = nearest_name(name, candidates);
  return best ? "; did you mean '" + *best + "'?" : "";
}

}  // namespace fovea

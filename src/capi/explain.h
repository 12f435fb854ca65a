// Reports for people and for programs: which engine would run a problem, here or over many ranks,
// and what was found on this machine.
#pragma once

#include <algorithm>
#include <string>

namespace fovea::capi {

// `label     text`, further lines under the first.
class Sheet {
 public:
  void row(std::string label, const std::string& text) {
    constexpr std::size_t width = 14;
    label.resize(std::max(width, label.size() + 2), ' ');
    text_ += label + text + "\n";
  }
  void more(const std::string& text) { row("", text); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace fovea::capi

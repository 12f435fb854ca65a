#include "tests/engines/reference/number.h"

#include <cmath>
#include <stdexcept>

namespace fovea::test {
namespace {

class NumberReader {
 public:
  explicit NumberReader(const std::string& text) : text_(text) {}

  double sum() {
    double value = product();
    while (take("+")) value += product();
    return value;
  }
  bool at_end() const { return at_ == text_.size(); }

 private:
  double product() {
    double value = factor();
    for (;;) {
      if (take("*")) {
        value *= factor();
      } else if (take("/")) {
        value /= factor();
      } else {
        return value;
      }
    }
  }

  double factor() {
    if (take("-")) return -factor();
    if (take("ln(")) return std::log(inside());
    if (take("exp(")) return std::exp(inside());
    std::size_t used = 0;
    const double value = std::stod(text_.substr(at_), &used);
    at_ += used;
    return value;
  }

  double inside() {
    const double value = sum();
    if (!take(")")) throw std::invalid_argument("no ')' in " + text_);
    return value;
  }

  bool take(const std::string& word) {
    if (text_.compare(at_, word.size(), word) != 0) return false;
    at_ += word.size();
    return true;
  }

  const std::string& text_;
  std::size_t at_ = 0;
};

}  // namespace

double parse_number(const std::string& text) {
  NumberReader reader(text);
  const double value = reader.sum();
  if (!reader.at_end()) throw std::invalid_argument("not a number: " + text);
  return value;
}

}  // namespace fovea::test

// Breaks a title, usually a formula, into lines that fit and elides what is left over.
// The caller says how wide a text is: pixels in the figure, columns in the terminal.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace fovea::cli {

using Measure = std::function<double(std::string_view)>;

// At most max_lines lines, each measuring at most width where a single character does.
std::vector<std::string> wrap_text(std::string_view text, double width, std::size_t max_lines,
                                   const Measure& measure);

// Takes one UTF-8 character from the front of text; a bad byte gives U+FFFD.
char32_t take_code_point(std::string_view& text);

// Control characters become spaces and bad UTF-8 a replacement mark, so that a title can neither
// steer a terminal nor break a line.
std::string printable(std::string_view text);

}  // namespace fovea::cli

#include "cli/verbs/verb.h"

#include <CLI/CLI.hpp>
#include <cctype>

namespace fovea::cli {
namespace {

// A line starts with `key=`; `q == k ? ...` and `let t = ...` do not.
bool starts_with_key(const std::string& text) {
  std::size_t at = text.find_first_not_of(" \t\n");
  if (at == std::string::npos) return true;
  const auto is_name = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  while (at < text.size() && is_name(text[at])) ++at;
  return at < text.size() && text[at] == '=' && (at + 1 == text.size() || text[at + 1] != '=');
}

}  // namespace

Option& Option::required() {
  option_.required();
  return *this;
}

Option& Option::tell_default() {
  option_.capture_default_str();
  return *this;
}

Option& Option::not_negative() {
  option_.check(CLI::NonNegativeNumber);
  return *this;
}

Option& Option::between(int lowest, int highest) {
  option_.check(CLI::Range(lowest, highest));
  return *this;
}

Option& Option::between(double lowest, double highest) {
  option_.check(CLI::Range(lowest, highest));
  return *this;
}

Verb::Verb(CLI::App& program, const std::string& name, const std::string& help)
    : app_(*program.add_subcommand(name, help)) {}

template <class T>
Option Verb::option(const std::string& name, T& value, const std::string& help) {
  return Option(*app_.add_option(name, value, help));
}
template Option Verb::option(const std::string&, std::string&, const std::string&);
template Option Verb::option(const std::string&, int&, const std::string&);
template Option Verb::option(const std::string&, unsigned long&, const std::string&);
template Option Verb::option(const std::string&, double&, const std::string&);

void Verb::flag(const std::string& name, bool& value, const std::string& help) {
  app_.add_flag(name, value, help);
}

void Verb::footer(const std::string& text) { app_.footer(text); }

void Verb::callback(const std::function<void()>& work) { app_.callback(work); }

std::string line_of(const std::string& text) {
  return starts_with_key(text) ? text : "mod=\"" + text + "\"";
}

}  // namespace fovea::cli

#include "verb.h"

#include <CLI/CLI.hpp>

namespace fovea::cli {

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

}  // namespace fovea::cli

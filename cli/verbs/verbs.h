// The verbs of the program, and what they take from the command line. Only verbs.cpp and main()
// include CLI11: its header alone takes longer to compile than all of a verb.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace fovea::cli {

class Option {
 public:
  explicit Option(CLI::Option& option) : option_(option) {}
  Option& required();
  Option& tell_default();  // in the help
  Option& not_negative();
  Option& between(int lowest, int highest);
  Option& between(double lowest, double highest);

 private:
  CLI::Option& option_;
};

class Verb {
 public:
  Verb(CLI::App& program, const std::string& name, const std::string& help);

  // For T = std::string, int, unsigned long and double. The value outlives the command line's
  // parsing.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& help);
  void flag(const std::string& name, bool& value, const std::string& help);
  void footer(const std::string& text);
  void callback(const std::function<void()>& work);

 private:
  CLI::App& app_;
};

// The line; or a bare formula as one: as its mask if it is one, else as its mod.
std::string line_of(const std::string& line_or_formula);

// Thrown if the work was done and its result is bad: the program exits with 1 and prints no more.
struct Failed {};

// Each adds itself to the command line and runs when it is given.
void add_bench(CLI::App& program);
void add_cache(CLI::App& program);
void add_compile(CLI::App& program);
void add_diff(CLI::App& program);
void add_doctor(CLI::App& program);
void add_explain(CLI::App& program);
void add_run(CLI::App& program);
void add_show(CLI::App& program);

}  // namespace fovea::cli

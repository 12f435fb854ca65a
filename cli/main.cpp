// The command-line program. Every mistake of the user exits 2 with a line that says what is wrong
// and, where a name was misspelt, the nearest right one.
#include <exception>
#include <iostream>
#include <vector>

#include "base/spelling.h"
#include "fovea/fovea.h"
#include "verbs.h"

namespace {

constexpr int usage_error = 2;

// CLI11 says only "The following argument was not expected": say what it could have been.
std::string suggestion(const CLI::App& program, int count, char** arguments) {
  std::vector<std::string> verbs, options;
  for (const CLI::App* verb : program.get_subcommands({})) {
    verbs.push_back(verb->get_name());
    for (const CLI::Option* option : verb->get_options()) {
      for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
    }
  }
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const bool is_option = word.starts_with("--");
    const std::vector<std::string>& known = is_option ? options : verbs;
    const bool unknown = std::find(known.begin(), known.end(), word) == known.end();
    if (unknown && (is_option || i == 1)) {
      return fovea::did_you_mean(word.substr(0, word.find('=')), known);
    }
  }
  return "";
}

int run(int count, char** arguments) {
  CLI::App program("Fovea: attention whose scores you can modify.", "fovea");
  program.set_version_flag("--version", fovea_version());
  program.set_help_all_flag("--help-all", "Help of all verbs");
  program.require_subcommand(1);
  program.footer("'fovea VERB --help' explains one verb, with examples.");
  fovea::cli::add_diff(program);
  fovea::cli::add_show(program);
  try {
    program.parse(count, arguments);
  } catch (const CLI::Success& request) {  // --help, --version
    return program.exit(request);
  } catch (const CLI::ParseError& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::cerr << "fovea: " << text << suggestion(program, count, arguments)
              << " ('fovea --help' lists the verbs)\n";
    return usage_error;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(count, arguments);
  } catch (const std::exception& error) {
    std::cerr << "fovea: " << error.what() << "\n";
    return usage_error;
  }
}

// The command-line program. Exit status 0: done. 1: done, but the result is bad, or a device
// failed. 2: a mistake of the user, with a line that says what is wrong and, if a word was
// misspelt, suggests the nearest one.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <fovea/handle.hpp>
#include <iostream>
#include <vector>

#include "cli/verbs/verbs.h"

namespace {

constexpr int bad_result = 1, usage_error = 2;

void add_verbs(CLI::App& program) {
  fovea::cli::add_run(program);
  fovea::cli::add_explain(program);
  fovea::cli::add_bench(program);
  fovea::cli::add_show(program);
  fovea::cli::add_diff(program);
  fovea::cli::add_doctor(program);
  fovea::cli::add_cache(program);
  fovea::cli::add_compile(program);
}

// Words separated by spaces.
bool is_known(const std::string& words, const std::string& word) {
  return (" " + words + " ").find(" " + word + " ") != std::string::npos;
}

// CLI11 says only that an argument was not expected: these say what it could have been.
std::string unknown_verb(const CLI::App& program, const std::string& first) {
  std::string verbs;
  for (const CLI::App* verb : program.get_subcommands({})) verbs += verb->get_name() + " ";
  if (first.starts_with("-") || is_known(verbs, first)) return "";
  return "unknown verb '" + first + "'" + fovea::did_you_mean(first, verbs);
}

std::string unknown_option(const CLI::App& program, const std::vector<std::string>& arguments) {
  const std::string& first = arguments.front();
  if (first.starts_with("-")) return "";
  std::string options = "--help --help-all -h";
  for (const CLI::Option* option : program.get_subcommand(first)->get_options()) {
    for (const std::string& name : option->get_lnames()) options += " --" + name;
    for (const std::string& name : option->get_snames()) options += " -" + name;
  }
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string word = arguments[i].substr(0, arguments[i].find('='));
    if (!word.starts_with("-") || is_known(options, word)) continue;
    return "unknown option '" + word + "' of " + first + fovea::did_you_mean(word, options);
  }
  return "";
}

// A line without quotes, which the shell took apart.
std::string unquoted_line(const std::vector<std::string>& arguments) {
  std::string line;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("-")) line += (line.empty() ? "" : " ") + arguments[i];
  }
  if (line.find('=') == std::string::npos) return "";
  return "a line is one argument: '" + line + "'";
}

int run(const std::vector<std::string>& arguments) {
  CLI::App program("Fovea: attention whose scores you can modify.", "fovea");
  program.set_version_flag("--version", fovea_version());
  program.set_help_all_flag("--help-all", "Help of all verbs");
  program.require_subcommand(1);
  program.footer(
      "Examples:\n"
      "  fovea run 'sq=64 mod=softcap(30) mask=causal direction=both' --engine reference --check\n"
      "  fovea explain 'b=8 h=32 sq=4096 d=128 dtype=bf16 mask=causal' --device h200\n"
      "  fovea diff 'tanh(score / 20) * 20'\n"
      "  fovea show 'mask=\"q >= k && q - k < 64\"' -o window.png\n"
      "'fovea VERB --help' explains one verb, with examples.");
  add_verbs(program);
  if (arguments.empty()) {
    std::cerr << program.help();
    return usage_error;
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    program.parse(reversed);
  } catch (const CLI::Success& request) {  // --help, --version
    return program.exit(request);
  } catch (const CLI::ParseError& error) {
    std::string text = unknown_verb(program, arguments.front());
    const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
    if (text.empty() && extra) text = unknown_option(program, arguments);
    if (text.empty() && extra) text = unquoted_line(arguments);
    if (text.empty()) text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::cerr << "fovea: " << text << " ('fovea --help' lists the verbs)\n";
    return usage_error;
  }
  return 0;
}

int say(std::string text, int code) {
  while (text.ends_with('\n')) text.pop_back();
  std::cerr << "fovea: " << text << "\n";
  return code;
}

int exit_code(fovea_status status) {
  const bool user = status == FOVEA_INVALID_ARGUMENT || status == FOVEA_UNSUPPORTED;
  return user ? usage_error : bad_result;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run({arguments + 1, arguments + count});
  } catch (const fovea::cli::Failed&) {
    return bad_result;
  } catch (const fovea::Error& error) {
    return say(error.what(), exit_code(error.status()));
  } catch (const std::exception& error) {
    return say(error.what(), usage_error);
  }
}

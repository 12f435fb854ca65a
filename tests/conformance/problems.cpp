#include "problems.h"

#include <filesystem>
#include <fstream>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "attention/problem_text.h"
#include "cuda/driver.h"
#include "planner/planner.h"

namespace fovea::conformance {
namespace {

// Where it was built, or, carried to another machine, in the folder it is run in.
std::string path_of(const std::string& file) {
  return std::filesystem::exists(file) ? file : FOVEA_SOURCE_DIR "/" + file;
}

void add_directive(Case& problem, const std::string& text, const std::string& path) {
  const std::string name = text.substr(text.find_first_not_of("#! "));
  if (name == "poison_masked_kv") {
    problem.data.poison_masked_kv = true;
  } else if (name == "spread_captured") {
    problem.data.spread_captured = true;
  } else {
    throw std::runtime_error(path + ":" + std::to_string(problem.number) + ": unknown directive '" +
                             name + "'");
  }
  problem.directives += text + " ";
}

}  // namespace

void PrintTo(const Case& problem, std::ostream* out) {
  *out << "problems.txt:" << problem.number << ": " << problem.directives << problem.line;
}

std::vector<Case> read_problems(const std::string& file) {
  const std::string path = path_of(file);
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<Case> out;
  Case next;
  for (std::string text; std::getline(in, text);) {
    ++next.number;
    if (text.starts_with("#!")) {
      add_directive(next, text, path);
    } else if (!text.empty() && !text.starts_with("#")) {
      next.line = text;
      out.push_back(next);
      next = Case{next.number, "", {}, ""};
    }
  }
  return out;
}

std::vector<std::string> host_engines() {
  std::istringstream in(fovea_engines());
  std::vector<std::string> out;
  for (std::string name; in >> name;) {
    if (name != "cudnn" && name != "jit") out.push_back(name);
  }
  return out;
}

std::string verdict(const std::string& engine, const Case& problem, const std::string& device) {
  const ProblemLine parsed = parse_problem_line(problem.line);
  const PlanRequest request{cuda::find_device(device), engine};
  for (const std::optional<Problem>* direction : {&parsed.forward, &parsed.backward}) {
    if (!*direction) continue;
    const auto explanation = planner().explain(**direction, request, false);
    for (const EngineVerdict& one : explanation->verdicts) {
      if (one.engine != engine || one.verdict.answer != Answer::No) continue;
      return one.verdict.reasons.empty() ? "no_reason" : one.verdict.reasons.front().code;
    }
  }
  return "pass";
}

std::vector<std::string> unpinned(const std::set<std::string>& lines, const std::string& file) {
  std::ifstream in(path_of("tests/conformance/" + file));
  if (!in) throw std::runtime_error("cannot read " + file);
  std::set<std::string> pinned;
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.front() != '#') pinned.insert(line);
  }
  std::vector<std::string> out;
  for (const std::string& one : lines) {
    if (!pinned.contains(one)) out.push_back("not in " + file + ": " + one);
  }
  for (const std::string& one : pinned) {
    if (!lines.contains(one)) out.push_back("in " + file + ", but no longer so: " + one);
  }
  return out;
}

}  // namespace fovea::conformance

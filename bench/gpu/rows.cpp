#include "bench/gpu/rows.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace fovea::bench {
namespace {

// In the folder it is run in, since it is carried to another machine, or where it was built.
std::string path_of(const std::string& tier) {
  const std::string here = "bench/gpu/" + tier + "_rows.txt";
  return std::filesystem::exists(here) ? here : FOVEA_SOURCE_DIR "/" + here;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(' ');
  return first == std::string::npos ? ""
                                    : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

Goal read_goal(const std::string& text) {
  std::istringstream in(text);
  std::string ms, bar;
  in >> ms >> bar;
  const auto number = [](const std::string& word) {
    return word.empty() || word == "-" ? std::nullopt : std::optional(std::stod(word));
  };
  return {number(ms), number(bar)};
}

}  // namespace

std::vector<BenchRow> read_rows(const std::string& tier) {
  const std::string path = path_of(tier);
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  std::vector<BenchRow> rows;
  for (std::string text; std::getline(in, text);) {
    if (text.empty() || text.front() == '#') continue;
    std::istringstream line(text);
    std::vector<std::string> fields(4);
    for (std::string& field : fields) std::getline(line, field, '|');
    std::string problem;  // may have a | of its own
    std::getline(line, problem);
    if (trimmed(problem).empty()) throw std::runtime_error(path + ": five fields in: " + text);
    rows.push_back({trimmed(fields[0]), trimmed(fields[1]), trimmed(problem), read_goal(fields[2]),
                    read_goal(fields[3])});
  }
  return rows;
}

std::vector<BenchRow> rows_named(const std::string& tier, const std::vector<std::string>& wanted) {
  const std::vector<BenchRow> all = read_rows(tier);
  if (wanted.empty()) return all;
  std::vector<BenchRow> out;
  for (const std::string& name : wanted) {
    const std::size_t before = out.size();
    for (const BenchRow& row : all) {
      if (row.name.starts_with(name)) out.push_back(row);
    }
    if (out.size() == before) throw std::runtime_error("no row '" + name + "' in " + path_of(tier));
  }
  return out;
}

}  // namespace fovea::bench

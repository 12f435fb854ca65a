#include "record.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "gpu_pair.h"

namespace fovea::gpu_tests {

Record& Record::of_this_process() {
  static Record record;
  return record;
}

Record::Record() {
  const char* const path = std::getenv("FOVEA_TEST_RECORD");
  if (path == nullptr) return;
  path_ = path;
  std::ifstream in(path_);
  const std::string word = "begin ";
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(word)) continue;
    begun_.push_back(line.substr(word.size(), line.find(' ', word.size()) - word.size()));
  }
  std::ranges::sort(begun_);
}

bool Record::was_begun(const std::string& key) const {
  return std::ranges::binary_search(begun_, key);
}

void Record::write(const std::string& text) {
  if (path_.empty()) return;
  std::ofstream out(path_, std::ios::app);
  out << text << "\n";
}

void Record::begin(const std::string& key, const std::string& line) {
  write("begin " + key + " " + line);
}

void Record::end(const std::string& key, const std::vector<cli::Comparison>& comparisons,
                 const std::vector<std::string>& complaints) {
  std::string text = (complaints.empty() ? "pass " : "FAIL ") + key;
  for (const cli::Comparison& one : comparisons) {
    char error[96];
    std::snprintf(error, sizeof error, " %s %.2g", one.name.c_str(), one.relative);
    text += error;
  }
  if (!complaints.empty()) text += "  " + complaints.front();
  std::ranges::replace(text, '\n', ' ');
  write(text);
}

void stop_if_the_gpu_is_lost(const std::string& key) {
  try {
    cli::Gpu* const gpu = cli::Gpu::find(tested_device());
    if (gpu != nullptr) gpu->wait();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: the GPU is lost: %s\n", key.c_str(), error.what());
    std::fflush(nullptr);
    _exit(3);
  }
}

}  // namespace fovea::gpu_tests

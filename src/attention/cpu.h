// What this machine's processor can do and how much of it this process may use. Used by device.cpp;
// the parts that read files take them as arguments, for tests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fovea {

std::string cpu_name();  // "AMD EPYC ...", or the architecture's name
std::vector<std::string>
cpu_isa();  // "avx512_bf16", "avx512", "avx2", "neon", "scalar": those it has, best first

// Whole processors that control groups allow, rounded up; 0: no limit. `root` is where they are
// mounted, `membership` the text of /proc/self/cgroup. Versions 1 and 2.
int quota_threads(const std::filesystem::path& root, const std::string& membership);

// That, and the processors of this process: at least 1.
int usable_threads();

}  // namespace fovea

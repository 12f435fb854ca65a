// NVRTC compiles the kernels of a matrix of plans, for GPUs that are not here. What ptxas says of
// each is pinned in kernels.txt: registers, bytes that are spilled, shared memory. Hot kernels
// hardly spill. To write the table anew: FOVEA_TEST_WRITE=1 fovea_test_jit
// --gtest_filter=*JitKernels*
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "cuda/nvrtc.h"
#include "engines/jit/compiler.h"
#include "engines/jit/prepare.h"
#include "tests/engines/jit/jit_case.h"

namespace fovea::jit::testing {
namespace {

const std::string table_path = std::string(FOVEA_SOURCE_DIR) + "/tests/engines/jit/kernels.txt";

// sm_120 is described here: a workstation's GPU, with half the shared memory.
Device device_of(const std::string& name) {
  if (name != "sm_120") return find_device(name);
  Device device = find_device("b200");
  device.name = "a GPU of sm_120";
  device.sm = 120;
  device.shared_memory_per_block = 101376;
  return device;
}

struct MatrixLine {
  const char* line;
  bool hot;  // neither forward nor backward may spill more than that
};
constexpr MatrixLine matrix[] = {
    {"h=8 sq=1024 d=128 dtype=bf16 mask=causal", true},
    {"h=8 sq=1024 d=64 dtype=f16 mod=softcap(30)", true},
    {"h=8 sq=1024 d=128 dtype=bf16 mask=\"a[b,q] == a[b,k]\" tensor=a:i32[B,Sq]", true},
    {"h=8 hkv=2 sq=1 skv=4096 d=128 dtype=bf16", false},
    {"h=8 sq=1024 d=256 dtype=bf16 mod=alibi", false},
    {"h=8 sq=1024 d=64 dtype=f32 dropout=0.1", false},
};

// What the kernels for sm_90 must hold in registers: nothing may be spilled, and their products
// must not be put one behind the other (C75xx in ptxas' words).
constexpr const char* hopper_lines[] = {
    "h=8 sq=1024 d=128 dtype=bf16",
    "h=8 sq=1024 d=128 dtype=bf16 mod=softcap(20) mask=causal",
    "h=8 sq=1024 d=128 dtype=bf16 mod=alibi mask=causal",
    "h=8 sq=1024 d=128 dtype=bf16 mask=sliding(99)",
    "h=8 sq=1024 d=128 dtype=bf16 mod=score+t[h,q,k] tensor=t:bf16[H,Sq,Skv]",
    "h=8 sq=1024 d=128 dtype=bf16 mod=score+t[h,q,k] tensor=t:bf16[H,Sq,Skv] grads=q,k,v,t",
    "h=8 sq=1024 d=128 dtype=bf16 mod=score+t[h]*(k-q) mask=causal tensor=t:f32[H] grads=q,k,v,t",
    "h=8 sq=1024 d=128 dtype=bf16 mod=score+t[h,q] tensor=t:f32[H,Sq] grads=q,k,v,t",
    "h=8 sq=1024 d=128 dtype=bf16 mod=score+t[h,k] tensor=t:f32[H,Skv] grads=q,k,v,t",
    "h=8 sq=1024 d=128 dtype=bf16 mod=score+t[h,min(abs(k-q),99)] tensor=t:f32[H,100] "
    "grads=q,k,v,t",
    "h=8 sq=1024 d=128 dtype=bf16 mask=causal deterministic=1",
    "h=8 sq=1024 d=64 dtype=bf16 mask=causal",
    "h=8 sq=1024 d=96 dtype=f16",
    "h=8 sq=1024 d=192 dv=128 dtype=bf16 mask=causal",
    "h=8 sq=1024 d=192 dtype=bf16",
    "h=8 sq=1024 d=256 dtype=bf16 mask=causal",
    "h=8 sq=1024 d=256 dtype=bf16 mod=softcap(20) mask=causal",
    "h=8 sq=1024 d=256 dtype=bf16 mod=score+t[h]*(k-q) mask=causal tensor=t:f32[H] grads=q,k,v,t",
    "h=8 sq=1024 d=256 dtype=bf16 mod=score+t[h,min(abs(k-q),99)] tensor=t:f32[H,100] "
    "grads=q,k,v,t",
    "h=8 sq=1024 d=256 dtype=bf16 mod=score+t[h,q,k] tensor=t:bf16[H,Sq,Skv] grads=q,k,v,t",
    "h=8 sq=1024 d=256 dtype=bf16 mask=causal deterministic=1",
    "h=8 sq=1024 d=192 dtype=bf16 deterministic=1",
};

// Tiles are as large as registers allow, so a few registers may be spilled. Tiles that are too
// large spill hundreds of bytes.
constexpr int most_spilled = 64;  // bytes

struct Usage {
  int registers = 0, spilled = 0, shared = 0;
  bool operator==(const Usage&) const = default;
};

int number_before(const std::string& line, const std::string& word) {
  const std::size_t at = line.find(word);
  if (at == std::string::npos) return 0;
  const std::size_t start = line.find_last_not_of("0123456789", at - 1) + 1;
  return std::atoi(line.substr(start, at - start).c_str());
}

// Of the kernel alone: functions that it calls have lines of their own.
Usage usage_of(const std::string& log, const std::string& kernel) {
  std::istringstream lines(log);
  Usage usage;
  bool own = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Function properties for") != std::string::npos) {
      own = line.ends_with(" " + kernel);
    } else if (own && line.find("spill stores") != std::string::npos) {
      usage.spilled = number_before(line, " bytes spill stores");
    } else if (own && line.find("Used ") != std::string::npos) {
      usage.registers = number_before(line, " registers");
    }
  }
  return usage;
}

std::string text_of(const std::string& name, const Usage& usage) {
  return name + " | " + std::to_string(usage.registers) + " | " + std::to_string(usage.spilled) +
         " | " + std::to_string(usage.shared);
}

using Table = std::map<std::string, Usage>;

Table read_table(std::string& version) {
  Table table;
  std::ifstream file(table_path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("# nvrtc ")) version = line.substr(8);
    if (line.starts_with("#") || line.empty()) continue;
    std::vector<std::string> cells;
    for (std::size_t at = 0; at != std::string::npos;) {
      const std::size_t bar = line.find(" | ", at);
      cells.push_back(line.substr(at, bar - at));
      at = bar == std::string::npos ? bar : bar + 3;
    }
    if (cells.size() != 6) throw std::runtime_error("kernels.txt: " + line);
    table[cells[0] + " | " + cells[1] + " | " + cells[2]] = {
        std::stoi(cells[3]), std::stoi(cells[4]), std::stoi(cells[5])};
  }
  return table;
}

void write_table(const Table& table) {
  std::ofstream file(table_path);
  file
      << "# What kernels of engine jit use: line | target | kernel | registers | bytes spilled | bytes "
         "of shared memory.\n# Written by kernels_test.cpp (FOVEA_TEST_WRITE=1).\n# nvrtc "
      << cuda::nvrtc_library().version << "\n";
  for (const auto& [name, usage] : table) file << text_of(name, usage) << "\n";
}

// The kernels of both directions of a line.
void compile_line(const MatrixLine& one, const Device& device, Table& table) {
  const std::string target = compiler().target(device);
  for (const Problem& problem : {forward_of(one.line), backward_of(one.line)}) {
    for (const PreparedUnit& unit : prepare(bake(problem).baked.problem, device).units) {
      const std::string& kernel = unit.source.name;
      const std::string name = std::string(one.line) + " | " + target + " | " + kernel;
      Usage usage = usage_of(compiler().compile(unit.source.unit(), target).log, kernel);
      usage.shared = unit.shared_bytes;
      table[name] = usage;
      const bool inner = kernel == "fovea_forward" || kernel == "fovea_backward";
      if (one.hot && inner) {
        EXPECT_LE(usage.spilled, most_spilled) << name;
      }
    }
  }
}

// Of a line that names gradients only those of the backward.
void compile_hopper_line(const std::string& line, const Device& device, Table& table) {
  const std::string target = compiler().target(device);
  std::vector<Problem> problems{backward_of(line)};
  if (line.find(" grads=") == std::string::npos) problems.push_back(forward_of(line));
  for (const Problem& problem : problems) {
    for (const PreparedUnit& unit : prepare(bake(problem).baked.problem, device).units) {
      const std::string& kernel = unit.source.name;
      const bool inner = kernel == "fovea_hopper_forward" || kernel == "fovea_hopper_backward" ||
                         kernel == "fovea_hopper_backward_wide";
      if (!inner) continue;
      const std::string log = compiler().compile(unit.source.unit(), target).log;
      Usage usage = usage_of(log, kernel);
      usage.shared = unit.shared_bytes;
      table[line + " | " + target + " | " + kernel] = usage;
      EXPECT_EQ(usage.spilled, 0) << line << ": " << kernel;
      EXPECT_EQ(log.find("C75"), std::string::npos) << line << "\n" << log;
    }
  }
}

// Rows of other targets stay as they are.
void update_table(const Table& now, const std::string& target) {
  std::string version;
  Table table = read_table(version);
  std::erase_if(table, [&](const auto& row) {
    return row.first.find(" | " + target + " | ") != std::string::npos;
  });
  table.insert(now.begin(), now.end());
  write_table(table);
}

class JitKernels : public ::testing::TestWithParam<const char*> {};

TEST_P(JitKernels, AreAsTheTableHasThem) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "NVRTC's own code would run in the sanitizer";
#endif
  if (!cuda::nvrtc_library().usable()) GTEST_SKIP() << cuda::nvrtc_library().problem;
  const Device device = device_of(GetParam());
  Table now;
  for (const MatrixLine& one : matrix) compile_line(one, device, now);
  if (device.sm == 90) {
    for (const char* const line : hopper_lines) compile_hopper_line(line, device, now);
  }
  if (std::getenv("FOVEA_TEST_WRITE") != nullptr) {
    return update_table(now, compiler().target(device));
  }
  std::string version;
  const Table pinned = read_table(version);
  if (version != cuda::nvrtc_library().version) {
    GTEST_SKIP() << "the table is of NVRTC " << version;
  }
  for (const auto& [name, usage] : now) {
    const auto at = pinned.find(name);
    if (at == pinned.end()) {
      ADD_FAILURE() << "not in the table: " << text_of(name, usage);
    } else {
      EXPECT_EQ(text_of(name, usage), text_of(name, at->second));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, JitKernels, ::testing::Values("a100", "h200", "b200", "sm_120"),
                         [](const auto& one) { return std::string(one.param); });

TEST(JitKernelTable, HasAtLeastSixtyKernels) {
  std::string version;
  EXPECT_GE(read_table(version).size(), 60U);
}

}  // namespace
}  // namespace fovea::jit::testing

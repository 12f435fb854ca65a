// Devices: the CPU that is here, GPUs that are described, and texts that describe nothing.
#include "attention/device.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "attention/cpu.h"
#include "base/error.h"
#include "tests/error_of.h"
#include "tests/ir/random.h"
#include "tests/store/store_case.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;

// A folder that is gone after the test, with files in it.
struct Folder : store::testing::TemporaryFolder {
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name)) << text;
  }
};

std::string refusal(const std::string& json) {
  return test::error_of<InvalidArgument>([&] { parse_device(json); });
}

TEST(Device, CpuIsDetected) {
  const Device& cpu = cpu_device();
  EXPECT_EQ(cpu.kind, DeviceKind::Cpu);
  EXPECT_FALSE(cpu.name.empty());
  EXPECT_GE(cpu.threads, 1);
  ASSERT_FALSE(cpu.isa.empty());
  EXPECT_EQ(cpu.isa.back(), "scalar");
  EXPECT_TRUE(find_device("cpu") == cpu);
  EXPECT_EQ(find_device("cpu").hash(), cpu.hash());
}

TEST(Device, H200IsBuiltIn) {
  const Device h200 = find_device("h200");
  EXPECT_EQ(h200.kind, DeviceKind::Cuda);
  EXPECT_TRUE(h200.described);
  EXPECT_EQ(h200.name, "NVIDIA H200");
  EXPECT_EQ(h200.sm, 90);
  EXPECT_EQ(h200.multiprocessors, 132);
  EXPECT_EQ(h200.shared_memory_per_block, 232448);
  EXPECT_EQ(h200.memory_bytes, 150109880320);
  EXPECT_TRUE(parse_device(h200.description) == h200);  // canonical
  EXPECT_EQ(built_in_devices(), (std::vector<std::string>{"a100", "h200", "b200"}));
  EXPECT_NE(h200.hash(), cpu_device().hash());
}

TEST(Device, IsReadFromAFile) {
  const Folder folder;
  folder.write("gpu.json", *built_in_description("h200"));
  EXPECT_TRUE(find_device(folder.path("gpu.json")) == find_device("h200"));
}

TEST(Device, GpusOfTheMachineAreFoundElsewhere) {
  for (const char* name : {"cuda", "cuda:0", "cuda:", "cuda:x", "cuda0"}) {
    EXPECT_THROW(find_device(name), InvalidArgument) << name;
  }
}

TEST(Device, UnknownNamesSayWhatIsKnown) {
  EXPECT_EQ(test::error_of<InvalidArgument>([] { find_device("h20"); }),
            "device=h20: is not cpu, cuda:N, a100, h200, b200 or the path of a JSON "
            "description; did you mean 'h200'?");
  EXPECT_THROW(find_device(""), InvalidArgument);
  EXPECT_THROW(find_device("missing.json"), InvalidArgument);
  EXPECT_THROW(find_device("/"), InvalidArgument);          // a folder
  EXPECT_THROW(find_device("/dev/zero"), InvalidArgument);  // no file
}

TEST(Device, DescriptionsThatDescribeNothingAreRefused) {
  EXPECT_EQ(refusal("{}"), "device description: lacks a \"deviceName\"");
  EXPECT_EQ(refusal("[1]"), "device description: must be an object, got [1]");
  EXPECT_EQ(refusal(R"~({"deviceName":"x"})~"), "device description: lacks \"deviceVer\"");
  EXPECT_EQ(refusal(R"~({"deviceName":"x","deviceVer":-900})~"),
            "device description: \"deviceVer\" must be a whole number from 1 to 9999, got -900");
  EXPECT_EQ(refusal(R"~({"deviceName":"x","deviceVer":"900"})~"),
            "device description: \"deviceVer\" must be a whole number from 1 to 9999, got \"900\"");
  EXPECT_EQ(refusal(R"~({"deviceName":"x","deviceVer":900,"multiProcessorCount":1e30})~"),
            "device description: \"multiProcessorCount\" must be a whole number from 1 to 65536, "
            "got 1e+30");
  EXPECT_EQ(refusal(R"~({"deviceName":7})~"), "device description: lacks a \"deviceName\"");
}

TEST(Device, HostileTextIsRefused) {
  EXPECT_EQ(refusal(std::string(100000, ' ')),
            "device description: has 100000 bytes; at most 65536 are read");
  EXPECT_EQ(refusal(std::string(60000, '[')), "device description: is nested too deeply");
  std::string deep = R"~({"deviceName":"x","y":)~" + std::string(30000, '[');
  EXPECT_EQ(refusal(deep), "device description: is nested too deeply");
  for (const char* text :
       {"", "{", "\"", "{\"a\":}", "nul", "\xff\xfe", "{\"deviceName\":\"\xff\"}"}) {
    EXPECT_TRUE(refusal(text).starts_with("device description: is not JSON: ")) << text;
  }
}

// Whatever one changes in a real description, it is read or refused.
TEST(Device, MutatedDescriptionsNeverCrash) {
  const std::uint64_t seed = test::printed_seed();
  std::mt19937_64 random(seed);
  const std::string whole = *built_in_description("h200");
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole;
    for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      if (random() % 2 == 0) {
        text[at] = static_cast<char>(random());
      } else {
        text.erase(at, 1 + random() % 20);
      }
    }
    refused += refusal(text) != "no error";
  }
  EXPECT_GT(refused, 10000);
}

// In processes of their own: the CPU is detected once. What is refused is printed for the test.
TEST(DeviceDeathTest, TheEnvironmentLimitsTheCpu) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [](const char* name, const char* value) {
    ::setenv(name, value, 1);
    try {
      const Device& cpu = cpu_device();
      std::fprintf(stderr, "%s %d", cpu.isa.front().c_str(), cpu.threads);
    } catch (const InvalidArgument& error) {
      std::fprintf(stderr, "%s", error.what());
    }
    std::_Exit(0);
  };
  const auto done = testing::ExitedWithCode(0);
  EXPECT_EXIT(run("FOVEA_CPU_ISA", "scalar"), done, "^scalar ");
  EXPECT_EXIT(
      run("FOVEA_CPU_ISA", "avx3"), done,
      "^FOVEA_CPU_ISA=avx3: must be scalar, neon, avx2, avx512 or avx512_bf16; did you mean 'avx2'");
  EXPECT_EXIT(run("FOVEA_NUM_THREADS", "3"), done, " 3$");
  EXPECT_EXIT(run("FOVEA_NUM_THREADS", "0"), done,
              "^FOVEA_NUM_THREADS=0: must be a whole number from 1 to 4096$");
  EXPECT_EXIT(run("FOVEA_NUM_THREADS", "many"), done, "^FOVEA_NUM_THREADS=many: must be");
}

TEST(Cpu, QuotaOfControlGroupsVersion2) {
  const Folder root;
  root.write("cpu.max", "max 100000\n");
  root.write("a/cpu.max", "350000 100000\n");
  root.write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(quota_threads(root.path(), "0::/\n"), 0);
  EXPECT_EQ(quota_threads(root.path(), "0::/a/b\n"), 4);  // of the group above, rounded up
  EXPECT_EQ(quota_threads(root.path(), "0::/elsewhere/c\n"), 0);
}

TEST(Cpu, QuotaOfControlGroupsVersion1) {
  const Folder root;
  root.write("cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  root.write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  root.write("cpu,cpuacct/free/cpu.cfs_quota_us", "-1\n");
  root.write("cpu,cpuacct/free/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota_threads(root.path(), "3:memory:/job\n4:cpu,cpuacct:/job\n0::/\n"), 2);
  EXPECT_EQ(quota_threads(root.path(), "4:cpu,cpuacct:/free\n"), 0);
  EXPECT_EQ(quota_threads(root.path(), "5:cpuset:/job\n"), 0);
}

TEST(Cpu, DamagedControlGroupsAreNoLimit) {
  const Folder root;
  root.write("cpu.max", "garbage");
  EXPECT_EQ(quota_threads(root.path(), "0::/\n\n::\nx\n"), 0);
  root.write("cpu.max", "100000 0\n");
  EXPECT_EQ(quota_threads(root.path(), "0::/\n"), 0);
  EXPECT_GE(usable_threads(), 1);
}

}  // namespace
}  // namespace fovea

// Which processors the process has, asked from any of its threads; and which memory nodes they
// belong to.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "attention/cpu.h"

namespace fovea {
namespace {

namespace fs = std::filesystem;

TEST(Affinity, ListsOfProcessors) {
  EXPECT_EQ(parse_cpus(""), Cpus{});
  EXPECT_EQ(parse_cpus("0"), Cpus{0});
  EXPECT_EQ(parse_cpus("0-3,8\n"), (Cpus{0, 1, 2, 3, 8}));
  EXPECT_EQ(parse_cpus("8,2-3,3"), (Cpus{2, 3, 8}));
  for (const char* const damaged : {"x", "-", "-1", "5-", "4-2", "99999999999", "0-99999999"}) {
    EXPECT_LE(parse_cpus(damaged).size(), 1u) << damaged;
  }
}

TEST(Affinity, AThreadIsBoundAndSaysSo) {
  const Cpus all = cpus_of_thread(0);
  ASSERT_FALSE(all.empty());
  std::thread([&] {
    EXPECT_TRUE(bind_thread(0, {all.back()}));
    EXPECT_EQ(cpus_of_thread(0), Cpus{all.back()});
    EXPECT_FALSE(bind_thread(0, {}));
  }).join();
  EXPECT_EQ(cpus_of_thread(0), all);
}

TEST(Affinity, ABoundCallerDoesNotNarrowTheProcess) {
  const Cpus main = cpus_of_thread(getpid());
  std::thread([&] {
    ASSERT_TRUE(bind_thread(0, {main.front()}));
    EXPECT_EQ(process_cpus().all, main);
    EXPECT_EQ(process_cpus().main, main);
  }).join();
}

TEST(Affinity, AnEarlierAnswerStandsWhileTheMainThreadIsTheSame) {
  const ProcessCpus now = process_cpus();
  const ProcessCpus wider{now.main, {0, 1, 2, 3, 4}};
  EXPECT_EQ(process_cpus(wider).all, wider.all);
  const ProcessCpus of_another{{4000}, {4000, 4001}};
  EXPECT_EQ(process_cpus(of_another).all, now.all);
}

// What OpenMP has bound the main thread to is not what the process may use. Anything else is.
TEST(Affinity, OnlyAPlaceOfOpenMpIsWidened) {
  const std::vector<Cpus> cores{{0}, {1}, {4, 5}};
  EXPECT_EQ(widened({0}, cores), (Cpus{0, 1, 4, 5}));
  EXPECT_EQ(widened({4, 5}, cores), (Cpus{0, 1, 4, 5}));
  EXPECT_EQ(widened({4}, cores), Cpus{4});
  EXPECT_EQ(widened({0, 1}, cores), (Cpus{0, 1}));
  EXPECT_EQ(widened({7}, cores), Cpus{7});
  EXPECT_EQ(widened({7}, {}), Cpus{7});
}

TEST(Affinity, MemoryNodesOfTheProcessorsInUse) {
  const fs::path root =
      fs::temp_directory_path() / ("fovea_nodes_" + std::to_string(std::random_device{}()));
  const auto node = [&](const char* name, const char* list) {
    fs::create_directories(root / name);
    std::ofstream(root / name / "cpulist") << list << "\n";
  };
  node("node0", "0-3,8-11");
  node("node1", "4-7,12-15");
  node("node2", "");  // memory alone
  node("node10", "16-19");
  node("power", "0-1");
  std::ofstream(root / "online") << "0-2,10\n";
  EXPECT_EQ(memory_nodes({0, 1, 9}, root).count, 1);
  EXPECT_EQ(memory_nodes({3, 4}, root).count, 2);
  const MemoryNodes two = memory_nodes({5, 17, 18}, root);
  EXPECT_EQ(two.count, 2);
  EXPECT_EQ(two.of_cpu.at(5), 0);
  EXPECT_EQ(two.of_cpu.at(17), 1);
  EXPECT_EQ(memory_nodes({100}, root).count, 1);
  fs::remove_all(root);
  EXPECT_EQ(memory_nodes({0, 1}, root).count, 1);  // a system that tells nothing
}

}  // namespace
}  // namespace fovea

// One build per key for any number of processes and threads that ask at once, also if some of them
// die.
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "base/error.h"
#include "store/plan_store.h"
#include "tests/store/store_case.h"

namespace fovea::store {
namespace {

using namespace fovea::store::testing;
using std::chrono::milliseconds;

constexpr int racers = 8;

// A byte per build: a short write to the end of a file is never torn.
void note_build(const std::string& path) {
  std::ofstream(path, std::ios::app | std::ios::binary) << 'b' << std::flush;
}

// All of them at once: when the pipe's other end is closed.
class StartingGun {
 public:
  StartingGun() {
    if (::pipe(ends_) != 0) throw std::runtime_error("no pipe");
  }
  ~StartingGun() { ::close(ends_[0]); }
  void wait() {
    ::close(ends_[1]);
    char nothing = 0;
    while (::read(ends_[0], &nothing, 1) < 0) {
    }
  }
  void fire() { ::close(ends_[1]); }

 private:
  int ends_[2] = {};
};

// How many processes built, and whether all got the blob.
std::size_t race(const std::string& folder, const Key& key, const std::string& notes,
                 const std::function<void()>& while_building) {
  StartingGun gun;
  std::vector<pid_t> children;
  for (int i = 0; i < racers; ++i) {
    children.push_back(start_process([&] {
      PlanStore plans(settings_for(folder));
      gun.wait();
      const Blob blob = plans.get_or_build(key, [&] {
        note_build(notes);
        while_building();
        return blob_of("the blob");
      });
      return text_of(blob) == "the blob" ? 0 : 1;
    }));
  }
  gun.fire();
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  return read_file(notes).size();
}

TEST(Race, OfEightProcessesOneBuilds) {
  const TemporaryFolder top;
  for (int i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i);
    const auto slowly = [&] { std::this_thread::sleep_for(milliseconds(i % 2 == 0 ? 0 : 20)); };
    EXPECT_EQ(race(top.path("cache"), key_of(name), top.path(name), slowly), 1U) << i;
  }
  EXPECT_EQ(count_files(top.path("cache"), lock_suffix), 0U);
  EXPECT_EQ(count_files(top.path("cache")), 20U);
}

// The system lets go of the lock: the next one builds, the others find that.
TEST(Race, ABuilderThatIsKilledBlocksNobody) {
  const TemporaryFolder top;
  const Key key = key_of("x");
  Settings patient = settings_for(top.path("cache"));
  patient.patience = milliseconds(600'000);  // only the lock's end can wake them
  StartingGun building;
  const pid_t doomed = start_process([&] {
    PlanStore(patient).get_or_build(key, [&]() -> Blob {
      note_build(top.path("notes"));
      building.wait();
      ::raise(SIGKILL);
      return {};
    });
    return 0;
  });
  while (read_file(top.path("notes")).empty()) std::this_thread::sleep_for(milliseconds(1));
  std::vector<pid_t> others;
  for (int i = 0; i < racers; ++i) {
    others.push_back(start_process([&] {
      building.fire();  // this process's end of it
      const Blob blob = PlanStore(patient).get_or_build(key, [&] {
        note_build(top.path("notes"));
        return blob_of("the blob");
      });
      return text_of(blob) == "the blob" ? 0 : 1;
    }));
  }
  std::this_thread::sleep_for(milliseconds(50));  // most of them wait by now
  building.fire();
  EXPECT_EQ(wait_for(doomed), 1000 + SIGKILL);
  for (const pid_t child : others) EXPECT_EQ(wait_for(child), 0);
  EXPECT_EQ(read_file(top.path("notes")).size(), 2U);
}

TEST(Race, ABuilderThatIsStuckIsNotWaitedForForEver) {
  const TemporaryFolder top;
  StartingGun end;
  const pid_t stuck = start_process([&] {
    PlanStore(settings_for(top.path("cache"))).get_or_build(key_of("x"), [&] {
      note_build(top.path("notes"));
      end.wait();
      return blob_of("late");
    });
    return 0;
  });
  while (read_file(top.path("notes")).empty()) std::this_thread::sleep_for(milliseconds(1));
  Settings hasty = settings_for(top.path("cache"));
  hasty.patience = milliseconds(30);
  Origin origin = Origin::Disk;
  const Log log;
  PlanStore plans(hasty);
  EXPECT_EQ(
      text_of(plans.get_or_build(key_of("x"), [] { return blob_of("own"); }, &origin)), "own");
  EXPECT_EQ(origin, Origin::Built);
  EXPECT_NE(log.text().find("is building for too long"), std::string::npos) << log.text();
  end.fire();
  EXPECT_EQ(wait_for(stuck), 0);
}

// A process that was forked while a builder held the lock, and lives on, does not hold it.
TEST(Race, AChildOfTheBuilderDoesNotKeepTheLock) {
  const TemporaryFolder top;
  StartingGun end;
  pid_t child = 0;
  Settings settings = settings_for(top.path("cache"));
  settings.patience = milliseconds(600'000);
  PlanStore plans(settings);
  EXPECT_THROW(plans.get_or_build(key_of("x"),
                                  [&]() -> Blob {
                                    child = start_process([&] {
                                      end.wait();
                                      return 0;
                                    });
                                    throw DeviceError("no plan");
                                  }),
               DeviceError);
  EXPECT_EQ(text_of(plans.get_or_build(key_of("x"), [] { return blob_of("of x"); })), "of x");
  end.fire();
  EXPECT_EQ(wait_for(child), 0);
}

TEST(Race, OfManyThreadsOneBuilds) {
  const TemporaryFolder top;
  for (const bool on_disk : {true, false}) {
    PlanStore plans(settings_for(on_disk ? top.path() : ""));
    std::atomic<int> builds = 0, right = 0, built = 0;
    std::atomic<bool> go = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < racers; ++i) {
      threads.emplace_back([&, i] {
        while (!go) std::this_thread::yield();
        Recording recording;
        Origin origin = Origin::Bundle;
        const Blob blob = plans.get_or_build(
            key_of(std::to_string(i % 2)),
            [&] {
              ++builds;
              std::this_thread::sleep_for(milliseconds(50));
              return blob_of(std::to_string(i % 2));
            },
            &origin);
        right += text_of(blob) == std::to_string(i % 2);
        built += origin == Origin::Built;
        right += recording.take().size() == 1;
      });
    }
    go = true;
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(right, 2 * racers);
    EXPECT_LE(builds.load(), on_disk ? 2 : racers);
    // If nothing is kept, a thread that came when a build was over builds again.
    EXPECT_GE(builds.load(), 2);
    EXPECT_GE(built.load(), builds.load());
  }
}

TEST(Race, AFailureReachesAllWhoWaitAndIsForgotten) {
  PlanStore plans(settings_for(""));
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < racers; ++i) {
    threads.emplace_back([&] {
      try {
        plans.get_or_build(key_of("x"), []() -> Blob {
          std::this_thread::sleep_for(milliseconds(20));
          throw DeviceError("no plan");
        });
      } catch (const DeviceError&) {
        ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, racers);
  EXPECT_EQ(text_of(plans.get_or_build(key_of("x"), [] { return blob_of("of x"); })), "of x");
}

// Readers beside writers of the same key never see half a file.
TEST(Race, NobodySeesHalfAFile) {
  const TemporaryFolder top;
  Disk disk({top.path(), ""}, default_limit);
  std::atomic<bool> stop = false;
  std::atomic<int> wrong = 0, seen = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&, i] {
      while (!stop) disk.save(key_of("x"), Blob(100'000, static_cast<std::uint8_t>(i)));
    });
    threads.emplace_back([&] {
      while (!stop) {
        const auto blob = disk.load(key_of("x"));
        if (!blob) continue;
        ++seen;
        const bool whole = blob->size() == 100'000 && *blob == Blob(100'000, blob->front());
        wrong += !whole;
      }
    });
  }
  const Log log;
  while (seen < 200) std::this_thread::sleep_for(milliseconds(1));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(log.text(), "");  // nothing was taken for damaged
}

}  // namespace
}  // namespace fovea::store

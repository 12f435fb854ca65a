// What this machine's processor can do, how much of it this process may use, and on which
// processors. The parts that read files take them as arguments, for tests.
#pragma once

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace fovea {

std::string cpu_name();  // "AMD EPYC ...", or the architecture's name

// "avx512_bf16", "avx512", "avx2", "neon", "scalar": those it has, best first.
std::vector<std::string> cpu_isa();

// Whole processors that control groups allow, rounded up; 0: no limit. `root` is where they are
// mounted, `membership` the text of /proc/self/cgroup. Versions 1 and 2.
int quota_threads(const std::filesystem::path& root, const std::string& membership);

// That, and the processors of this process: at least 1.
int usable_threads();

using Cpus = std::vector<int>;  // numbers of processors, increasing

Cpus parse_cpus(const std::string& list);  // "0-3,8"; what is no number is left out
Cpus cpus_of_thread(int id);  // what the system lets a thread run on; 0: the caller. Empty: unknown
bool bind_thread(int id, const Cpus& cpus);  // 0: the caller. False: the system refuses
// Moves a new thread to one processor, from where it may go to any of `cpus`. Schedulers of some
// virtual machines leave threads where they were made: all on their creator's processor.
bool start_thread_on(std::thread& thread, int cpu, const Cpus& cpus);

// Threads inherit what their creator is bound to, and a caller is often bound to one processor. So
// the process's processors are taken to be those of its main thread: `taskset`, a control group, a
// launcher and os.sched_setaffinity all limit that thread, and their limit holds. Only OpenMP binds
// the main thread without meaning the process (OMP_PROC_BIND, GOMP_CPU_AFFINITY, KMP_AFFINITY), and
// libgomp does so when it is loaded. If the main thread is bound to exactly one of OpenMP's places,
// the process has all of these places, which OpenMP made from what the process started with.
//
// Two other answers would be wrong: what the main thread had when this library was loaded, since
// torch and OpenMP were loaded before; and what all threads have together, since those of a BLAS
// keep the whole machine after a launcher has given each process its part.
struct ProcessCpus {
  Cpus main;  // of the main thread
  Cpus all;   // at least one
};
// `before` is an earlier answer. It is returned as long as the main thread may run on the same
// processors, so that a forked child, whose main thread is the one that forked, need not ask
// OpenMP.
ProcessCpus process_cpus(const ProcessCpus& before = {});
// All of `places` if `main` is one of them, else `main`.
Cpus widened(const Cpus& main, const std::vector<Cpus>& places);

// Nodes of memory (NUMA), numbered from 0 among those that have one of `cpus`.
struct MemoryNodes {
  int count = 1;
  std::vector<int> of_cpu;  // by number of the processor, as far as they are known
};
MemoryNodes memory_nodes(const Cpus& cpus,
                         const std::filesystem::path& root = "/sys/devices/system/node");

}  // namespace fovea

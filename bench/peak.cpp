// How many fused multiply-adds this machine can do: what rates are percentages of. One line per
// instruction set and number of threads, `avx512 2 178.3` (GFLOP/s of f32), all threads at once,
// each on a processor of its own. Clocks move with load and heat, so benchmarks ask before and
// after.
//
//   fovea_peak [THREADS [MILLISECONDS]]
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

// Steps of twelve independent multiply-adds: enough to fill two pipes of latency 4, and few enough
// for sixteen registers. In assembler, since the loop is the measurement: compilers keep an array
// of vectors in memory, or see through the sum.
constexpr int vectors = 12, steps = 20000;

#if defined(__x86_64__)
#define FMA(sum) asm volatile("vfmadd213ps %2, %1, %0" : "+x"(sum) : "x"(factor), "x"(term))
#define FMA_LOOP(floats)                                                                          \
  typedef float V __attribute__((vector_size((floats) * sizeof(float))));                         \
  V a = V{} + start, b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a; \
  const V factor = V{} + 0.999f, term = V{} + 1e-3f;                                              \
  for (int step = 0; step < steps; ++step) {                                                      \
    FMA(a);                                                                                       \
    FMA(b);                                                                                       \
    FMA(c);                                                                                       \
    FMA(d);                                                                                       \
    FMA(e);                                                                                       \
    FMA(f);                                                                                       \
    FMA(g);                                                                                       \
    FMA(h);                                                                                       \
    FMA(i);                                                                                       \
    FMA(j);                                                                                       \
    FMA(k);                                                                                       \
    FMA(l);                                                                                       \
  }                                                                                               \
  a += b + c + d + e + f + g + h + i + j + k + l;                                                 \
  return a[0];

__attribute__((target("avx512f"))) float with_avx512(float start) { FMA_LOOP(16) }
__attribute__((target("avx2,fma"))) float with_avx2(float start) { FMA_LOOP(8) }
#endif

struct Kind {
  const char* name;
  float (*loop)(float);
  int floats;
};

std::vector<Kind> kinds() {
  std::vector<Kind> out;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) out.push_back({"avx512", with_avx512, 16});
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    out.push_back({"avx2", with_avx2, 8});
  }
#endif
  return out;
}

// Processors that this process may use, in order.
std::vector<int> processors() {
  cpu_set_t set;
  std::vector<int> out;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return out;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &set)) out.push_back(i);
  }
  return out;
}

void bind_to(int processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

// GFLOP/s of one thread: the best of bursts of about 50 us, so that a neighbour does not count.
double best_burst(const Kind& kind, Clock::time_point end) {
  const double flops = 2.0 * vectors * kind.floats * steps;
  double best = 1e9;
  volatile float kept = 1;
  while (Clock::now() < end) {
    const Clock::time_point start = Clock::now();
    kept = kind.loop(kept);
    best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count());
  }
  return flops / best / 1e9;
}

double peak(const Kind& kind, int threads, std::chrono::milliseconds time) {
  const std::vector<int> own = processors();
  std::vector<double> rates(static_cast<std::size_t>(threads));
  std::vector<std::thread> running;
  std::atomic<int> present{0};
  for (std::size_t i = 0; i < rates.size(); ++i) {
    running.emplace_back([&, i] {
      if (i < own.size()) bind_to(own[i]);
      ++present;
      while (present < threads) std::this_thread::yield();
      rates[i] = best_burst(kind, Clock::now() + time);
    });
  }
  for (std::thread& thread : running) thread.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

}  // namespace

int main(int count, char** words) {
  const int threads = count > 1 ? std::atoi(words[1]) : 1;
  const int time = count > 2 ? std::atoi(words[2]) : 300;
  if (threads < 1 || threads > 1024 || time < 1) {
    std::fprintf(stderr, "usage: %s [THREADS [MILLISECONDS]]\n", words[0]);
    return 2;
  }
  for (const Kind& kind : kinds()) {
    std::printf("%s %d %.1f\n", kind.name, threads,
                peak(kind, threads, std::chrono::milliseconds(time)));
  }
}

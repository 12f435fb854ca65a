#include "tests/capi/c_call.h"

#include <cstring>
#include <new>
#include <random>
#include <stdexcept>

namespace fovea::testing {
namespace {

void expect_ok(fovea_status status) {
  if (status != FOVEA_OK) {
    throw std::runtime_error(std::string(fovea_status_name(status)) + ": " + fovea_last_error());
  }
}

std::size_t element_count(const fovea_sizes& s, std::int64_t heads, std::int64_t length,
                          std::int64_t features, bool packed) {
  return static_cast<std::size_t>((packed ? 1 : s.b) * heads * length * features);
}

}  // namespace

Owned<fovea_problem> parse_problem(const std::string& line) {
  fovea_problem problem = nullptr;
  expect_ok(fovea_problem_parse(line.c_str(), &problem, nullptr));
  return Owned<fovea_problem>(problem);
}

Owned<fovea_program> parse_program(const std::string& line) {
  fovea_program program = nullptr;
  expect_ok(fovea_program_parse(line.c_str(), &program));
  return Owned<fovea_program>(program);
}

std::string text_of(fovea_report report) {
  const Owned<fovea_report> owned(report);
  return fovea_report_text(report);
}

fovea_cache_stats statistics() {
  fovea_cache_stats stats{};
  stats.struct_size = sizeof stats;
  expect_ok(fovea_cache_statistics(&stats));
  return stats;
}

CCall::CCall(const std::string& line) : problem(parse_problem(line)) {
  config.struct_size = sizeof config;
  expect_ok(fovea_problem_describe(problem.get(), &config));
  const fovea_plan_options options = reference_options();
  fovea_plan made = nullptr;
  expect_ok(fovea_plan_create(problem.get(), &options, &made));
  plan.reset(made);

  bindings.struct_size = sizeof bindings;
  bind_tensors();
  bind_rows();
  bind_sequences();
  bind_captured();
  std::size_t bytes = 0;
  expect_ok(fovea_plan_workspace(plan.get(), nullptr, &bytes));
  bindings.workspace = allocate("workspace", bytes / 8 + 8);
  bindings.workspace_bytes = bytes;
}

std::string CCall::outcome() {
  const fovea_status status = run();
  if (status == FOVEA_OK) return "accepted";
  return std::string(fovea_status_name(status)) + ": " + fovea_last_error();
}

// Eight bytes an element: room for every type. Filled with small floats.
void* CCall::allocate(const std::string& name, std::size_t elements) {
  const std::size_t bytes = 8 * elements + 64;
  auto* memory = static_cast<std::byte*>(::operator new[](bytes, std::align_val_t{64}));
  blocks_[name].reset(memory);
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>{}(name)));
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i + sizeof(float) <= bytes; i += sizeof(float)) {
    const float x = normal(random);
    std::memcpy(memory + i, &x, sizeof x);
  }
  return memory;
}

bool CCall::wants(const std::string& name) const {
  const std::string list = "," + std::string(config.grads == nullptr ? "" : config.grads) + ",";
  return list.find("," + name + ",") != std::string::npos;
}

void CCall::bind_tensors() {
  const fovea_sizes& s = config.sizes;
  const bool packed = config.layout == FOVEA_THD, backward = config.direction == FOVEA_BACKWARD;
  const std::int64_t sq = packed ? s.t_q : s.sq, skv = packed ? s.t_k : s.skv;
  const std::size_t q = element_count(s, s.h, sq, s.d, packed);
  const std::size_t k = element_count(s, s.hkv, skv, s.d, packed);
  const std::size_t v = element_count(s, s.hkv, skv, s.dv, packed);
  const std::size_t o = element_count(s, s.h, sq, s.dv, packed);
  bindings.q.data = allocate("q", q);
  bindings.k.data = allocate("k", k);
  bindings.v.data = allocate("v", v);
  bindings.o.data = allocate("o", o);
  if (!backward) return;
  bindings.grad_o.data = allocate("do", o);
  if (wants("q")) bindings.grad_q.data = allocate("dq", q);
  if (wants("k")) bindings.grad_k.data = allocate("dk", k);
  if (wants("v")) bindings.grad_v.data = allocate("dv", v);
}

void CCall::bind_rows() {
  const fovea_sizes& s = config.sizes;
  const bool packed = config.layout == FOVEA_THD, backward = config.direction == FOVEA_BACKWARD;
  const std::size_t rows = element_count(s, s.h, packed ? s.t_q : s.sq, 1, packed);
  const auto heads = static_cast<std::size_t>(s.h);
  if (backward) bindings.lse = allocate("lse", rows);
#define FOVEA_OUTPUT(name, extent, saved) \
  if (config.name != 0) bindings.name = allocate(#name, extent);
#include "fovea/fields.def"
  if (config.has_grad_lse != 0) bindings.grad_lse = allocate("dlse", rows);
  if (config.sink != 0) bindings.sink = allocate("sink", heads);
  if (backward && wants("sink")) bindings.grad_sink = allocate("d_sink", heads);
}

void CCall::bind_sequences() {
  const fovea_sizes& s = config.sizes;
  const auto list = [&](const char* name, std::int64_t count, std::int64_t first,
                        std::int64_t step) {
    auto* values = static_cast<std::int32_t*>(allocate(name, static_cast<std::size_t>(count)));
    for (std::int64_t i = 0; i < count; ++i)
      values[i] = static_cast<std::int32_t>(first + i * step);
    return values;
  };
  if (config.has_q_lengths != 0) bindings.q_lengths = list("qlens", s.b, s.sq, 0);
  if (config.has_k_lengths != 0) bindings.k_lengths = list("klens", s.b, s.skv, 0);
  if (config.has_q_offsets != 0) bindings.q_offsets = list("q_offsets", s.b, 0, 1);
  if (config.has_k_offsets != 0) bindings.k_offsets = list("k_offsets", s.b, 0, 1);
  if (config.layout != FOVEA_THD) return;
  bindings.q_starts = list("cu_q", s.b + 1, 0, s.b == 0 ? 0 : s.t_q / s.b);
  bindings.k_starts = list("cu_k", s.b + 1, 0, s.b == 0 ? 0 : s.t_k / s.b);
}

void CCall::bind_captured() {
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  constexpr std::size_t plenty = 4096;  // elements: the tests' tensors are smaller
  for (std::size_t i = 0; i < fovea_program_tensor_count(config.program); ++i) {
    expect_ok(fovea_program_tensor(config.program, i, &info));
    fovea_tensor_binding binding{info.name, {}, {}};
    binding.array.data = allocate(info.name, plenty);
    if (wants(info.name)) binding.gradient.data = allocate("d_" + std::string(info.name), plenty);
    tensors.push_back(binding);
  }
  for (std::size_t i = 0; i < fovea_program_scalar_count(config.program); ++i) {
    expect_ok(fovea_program_scalar(config.program, i, &info));
    fovea_scalar_binding binding{info.name, info.has_value != 0 ? info.value : 2, nullptr, nullptr};
    if (wants(info.name)) binding.gradient = allocate("d_" + std::string(info.name), 1);
    scalars.push_back(binding);
  }
  bindings.tensors = tensors.data();
  bindings.tensor_count = tensors.size();
  bindings.scalars = scalars.data();
  bindings.scalar_count = scalars.size();
}

}  // namespace fovea::testing

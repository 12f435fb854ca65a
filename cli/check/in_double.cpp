#include "cli/check/in_double.h"

#include <algorithm>

namespace fovea::cli {
namespace {

Array widened(const Array& array, const char* dtype = "f64") {
  if (!is_float(array.dtype)) return array;
  Array out = zeros(dtype, array.extents);
  for (std::int64_t i = 0; i < array.size(); ++i) out.set(i, array.get(i));
  return out;
}

std::string word(const std::string& key, const std::string& value) {
  return value.empty() ? "" : key + "=\"" + value + "\" ";
}

Problem widened_problem(fovea_problem_config config, fovea_program program) {
  config.program = program;
  config.dtype = FOVEA_F64;
  config.o_dtype = config.do_dtype = FOVEA_DTYPE_DEFAULT;  // as q
  config.dq_dtype = config.dk_dtype = config.dv_dtype = FOVEA_DTYPE_DEFAULT;
  for (auto* strides :
       {&config.q_strides, &config.k_strides, &config.v_strides, &config.o_strides,
        &config.do_strides, &config.dq_strides, &config.dk_strides, &config.dv_strides}) {
    std::fill(std::begin(*strides), std::end(*strides), 0);
  }
  return Problem(config);
}

}  // namespace

Program widened_program(fovea_program program, const std::string& mod) {
  const std::string printed = report_of(fovea_program_print, program, FOVEA_TEXT_CANONICAL);
  std::string line = word("mod", mod.empty() ? line_value(printed, "mod") : mod);
  for (const char* key : {"mask", "bprop"}) line += word(key, line_value(printed, key));
  fovea_capture_info info{};
  info.struct_size = sizeof info;
  for (std::size_t i = 0; i < fovea_program_tensor_count(program); ++i) {
    check(fovea_program_tensor(program, i, &info));
    const std::string dtype = dtype_name(info.dtype);
    line += word("tensor", std::string(info.name) + ":" + (is_float(dtype) ? "f32" : dtype) + "[" +
                               info.extents + "]");
  }
  for (std::size_t i = 0; i < fovea_program_scalar_count(program); ++i) {
    check(fovea_program_scalar(program, i, &info));
    line += word("scalar", std::string(info.name) + ":" + dtype_name(info.dtype));
  }
  return Program(line);
}

Workload in_double(const Workload& from) {
  Workload out;
  out.program = widened_program(from.program->get());
  out.forward = widened_problem(from.config, out.program->get());
  describe(*out.forward, out.config);
  if (from.backward) {
    out.backward = widened_problem(from.backward_config, out.program->get());
    describe(*out.backward, out.backward_config);
  }
  out.forward_asked = from.forward_asked;
  out.q = widened(from.q), out.k = widened(from.k), out.v = widened(from.v);
  out.grad_o = widened(from.grad_o);
  out.sink = widened(from.sink), out.grad_lse = widened(from.grad_lse);
  out.captured = from.captured;
  for (CapturedTensor& tensor : out.captured.tensors) tensor.values = widened(tensor.values, "f32");
  out.q_lengths = from.q_lengths, out.k_lengths = from.k_lengths;
  out.q_starts = from.q_starts, out.k_starts = from.k_starts;
  out.q_offsets = from.q_offsets, out.k_offsets = from.k_offsets;
  out.seed = from.seed, out.offset = from.offset;
  return out;
}

}  // namespace fovea::cli

// Random bytes and mutated lines into everything of the C interface that reads text: nothing may
// crash or leak, and every refusal has a text. A tenth of it under sanitizers, which make it slow.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "attention/device.h"
#include "base/error.h"
#include "ir/expr.h"
#include "tests/capi/c_call.h"
#include "tests/store/store_case.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FOVEA_SLOW_BUILD 1
#else
#define FOVEA_SLOW_BUILD 0
#endif

namespace {

using namespace fovea::testing;

constexpr int share = FOVEA_SLOW_BUILD ? 10 : 1;
constexpr int random_texts = 1'000'000 / share;
constexpr int mutated_lines = 100'000 / share;
constexpr int mutated_descriptions = 20'000 / share;

const std::vector<std::string> seeds{
    "b=2 h=8 hkv=2 sq=1024 skv=1024 d=64 dv=64 dtype=bf16 layout=bshd scale=0.125 direction=both "
    "mod=\"softcap*tanh(score/softcap) + slopes[h]*(k-q)\" mask=\"q>=k\" scalar=\"softcap=30\" "
    "tensor=\"slopes:f32[H]\" grads=\"q,k,v,slopes,softcap\"",
    "b=2 sq=1024 dropout=0.1 rng=portable sink=1 qlens=100,1024 klens=100,1024 q_offset=0 "
    "k_offset=0 deterministic=1 capture=0 lse=1 row_max=1 max_logit=1 seed=1 offset=0",
    "direction=backward h=4 bprop=\"grad * 2\" mod=\"score * 2\" o_dtype=f32 grad_dtype=f32 "
    "q_strides=32768,8192,64,1 b_offset=1 h_offset=4 h_global=8 dlse=1",
    "layout=thd b=2 h=2 d=8 cu_q=0,100,612 cu_k=0,64,300 mask=\"doc[b, q] == doc[b, k]\" "
    "tensor=\"doc:i32[B,Sq]=docs(5)\"",
    "mod=\"let t = score / x; let u = tanh(t); x * u\" scalar=\"x=7\" scalar=\"n:i32=3\" "
    "mask=\"prefix(n) || sliding(16) && (k ^ q) % 3 != 1\"",
    "mod=alibi mask=causal_bottom_right tensor=\"bias:bf16[B,H,Sq,Skv]=uniform(0,1)\"",
    "mod=\"score + t[h, q] + u[k]\" tensor=t:f32[H,Sq] tensor=u:f32[Skv] "
    "tensor_strides=\"t:1,8 u:2\" values=device",
};

const std::vector<std::string> pieces{"=",
                                      "\"",
                                      ":",
                                      "[",
                                      "]",
                                      ",",
                                      "(",
                                      ")",
                                      "-1",
                                      "0",
                                      "9223372036854775807",
                                      "4294967296",
                                      "1e400",
                                      "nan",
                                      "inf",
                                      "bound",
                                      "tanh",
                                      "score",
                                      "q",
                                      "k",
                                      "let ",
                                      ";",
                                      "?",
                                      " mod=",
                                      " mask=",
                                      " b=",
                                      " sq=",
                                      " layout=thd",
                                      " direction=both",
                                      " tensor=",
                                      " scalar=",
                                      "f32[H]",
                                      "\\",
                                      "\t",
                                      "\x80",
                                      "f32(",
                                      "i32(",
                                      "1.5e-3",
                                      "//",
                                      "%",
                                      "&&",
                                      "||",
                                      "!"};

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  std::string bytes() {
    // Half of them from the alphabet of lines: those get further.
    static const std::string alphabet = "bhqkdmoszlstancre=\"()[]+-*/%<>&|!?:;., 0123456789";
    const bool printable = below(2) == 0;
    std::string text(below(64), ' ');
    for (char& c : text) {
      c = printable ? alphabet[below(alphabet.size())] : static_cast<char>(1 + below(255));
    }
    return text;
  }
  std::string mutated(std::string text) {
    for (std::size_t i = 1 + below(4); i-- > 0;) mutate(text);
    return text;
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(random_() % n); }

 private:
  void mutate(std::string& text) {
    const std::size_t at = below(text.size() + 1), rest = text.size() - at;
    const std::size_t length = std::min<std::size_t>(rest, below(12));
    switch (below(5)) {
      case 0: text.erase(at, length); break;
      case 1: text.insert(at, pieces[below(pieces.size())]); break;
      case 2: text.insert(at, text.substr(below(text.size() + 1), below(12))); break;
      case 3: text.replace(at, length, pieces[below(pieces.size())]); break;
      case 4:
        if (rest > 0) text[at] = static_cast<char>(1 + below(255));
        break;
    }
  }

  std::mt19937_64 random_;
};

struct Tally {
  int accepted = 0, refused = 0;

  void count(fovea_status status, const std::string& text) {
    if (status == FOVEA_OK) {
      ++accepted;
      return;
    }
    ++refused;
    if (status != FOVEA_INVALID_ARGUMENT || *fovea_last_error() == '\0') {
      ADD_FAILURE() << fovea_status_name(status) << ": '" << fovea_last_error()
                    << "' for: " << ::testing::PrintToString(text);
    }
  }
};

void parse_program_text(const std::string& text, Tally& tally) {
  fovea_program program = nullptr;
  const fovea_status status = fovea_program_parse(text.c_str(), &program);
  tally.count(status, text);
  fovea_program_destroy(program);
}

// What was accepted must print and read back as the same problem.
void parse_problem_text(const std::string& text, Tally& tally) {
  fovea_problem problem = nullptr, backward = nullptr;
  const fovea_status status = fovea_problem_parse(text.c_str(), &problem, &backward);
  tally.count(status, text);
  if (status == FOVEA_OK) {
    fovea_report line = nullptr;
    ASSERT_EQ(fovea_problem_print(problem, &line), FOVEA_OK);
    fovea_problem again = nullptr;
    EXPECT_EQ(fovea_problem_parse(fovea_report_text(line), &again, nullptr), FOVEA_OK)
        << fovea_last_error() << "\nprinted: " << fovea_report_text(line) << "\nfrom: " << text;
    EXPECT_EQ(fovea_problem_equal(problem, again), 1) << fovea_report_text(line);
    fovea_report_destroy(line);
    fovea_problem_destroy(again);
  }
  fovea_problem_destroy(problem);
  fovea_problem_destroy(backward);
}

TEST(Fuzz, RandomBytesIntoTheParsers) {
  Mutator mutator(20240601);
  Tally programs, problems;
  const std::size_t nodes = fovea::ir::live_nodes();
  for (int i = 0; i < random_texts; ++i) {
    const std::string text = mutator.bytes();
    if (i % 2 == 0) {
      parse_program_text(text, programs);
    } else {
      parse_problem_text(text, problems);
    }
    if (HasFailure()) break;
  }
  EXPECT_EQ(fovea::ir::live_nodes(), nodes);  // a leak of formulas would show here
  EXPECT_GT(programs.refused, random_texts / 4);
  EXPECT_GT(problems.refused, random_texts / 4);
}

TEST(Fuzz, MutatedLinesIntoTheParsers) {
  Mutator mutator(7);
  Tally programs, problems;
  const std::size_t nodes = fovea::ir::live_nodes();
  for (int i = 0; i < mutated_lines && !HasFailure(); ++i) {
    const std::string line = mutator.mutated(seeds[mutator.below(seeds.size())]);
    parse_problem_text(line, problems);
    if (i % 4 == 0) parse_program_text(line, programs);
  }
  EXPECT_EQ(fovea::ir::live_nodes(), nodes);
  // Both ways were taken: the mutations are neither too weak nor too strong.
  EXPECT_GT(problems.accepted, mutated_lines / 100);
  EXPECT_GT(problems.refused, mutated_lines / 100);
}

TEST(Fuzz, MutatedFormulasIntoPrograms) {
  Mutator mutator(11);
  Tally tally;
  const std::string seed =
      "mod=\"let t = score / x; x * tanh(t) + bias[h, clamp(q - k, -8, 8) + 8]\" "
      "mask=\"q >= k && (q - k < 64 || doc[b, q] == doc[b, k])\" scalar=x=3 "
      "tensor=bias:f32[H,17] tensor=doc:i32[B,Sq]";
  for (int i = 0; i < mutated_lines && !HasFailure(); ++i) {
    parse_program_text(mutator.mutated(seed), tally);
  }
  EXPECT_GT(tally.accepted, mutated_lines / 100);
}

TEST(Fuzz, MutatedDescriptionsOfDevices) {
  Mutator mutator(13);
  const std::string seed = fovea::find_device("h200").description;
  ASSERT_NE(seed, "");
  int accepted = 0, refused = 0;
  for (int i = 0; i < mutated_descriptions; ++i) {
    const std::string json = i % 4 == 0 ? mutator.bytes() : mutator.mutated(seed);
    try {
      fovea::parse_device(json);
      ++accepted;
    } catch (const fovea::InvalidArgument& error) {
      ++refused;
      ASSERT_STRNE(error.what(), "") << json;
    }
  }
  EXPECT_GT(refused, mutated_descriptions / 10);
  EXPECT_GT(accepted, 0);
}

TEST(Fuzz, MutatedDescriptionsThroughAFile) {
  Mutator mutator(17);
  const auto problem = parse_problem("h=2 sq=8 d=4");
  const std::string seed = fovea::find_device("h200").description;
  const fovea::store::testing::TemporaryFolder folder;
  const std::string path = folder.path("device.json");
  for (int i = 0; i < 200; ++i) {
    std::ofstream(path, std::ios::binary) << mutator.mutated(seed);
    const fovea_plan_options options{sizeof options, nullptr, path.c_str(), nullptr};
    fovea_report report = nullptr;
    const fovea_status status = fovea_explain(problem.get(), &options, FOVEA_EXPLAIN_JSON, &report);
    fovea_report_destroy(report);
    ASSERT_TRUE(status == FOVEA_OK || status == FOVEA_INVALID_ARGUMENT) << fovea_last_error();
  }
}

}  // namespace

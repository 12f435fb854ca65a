// Which engine is chosen, and what was asked of whom.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/error_of.h"
#include "tests/planner/fake_engine.h"

namespace fovea {
namespace {

using namespace testing;

const char* const line = "b=2 h=4 sq=16 d=8 mod=\"score * 3.5\" mask=causal";

class Choose : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("FOVEA_ENGINE"); }
  void TearDown() override { unsetenv("FOVEA_ENGINE"); }

  FakeEngine fast{"fast"}, slow{"slow"}, exact{"exact"};
  Planner planner{{{&fast, false}, {&slow, false}, {&exact, true}}};
  Problem problem = problem_of(line);
  PlanRequest here{device_named("here"), ""};
  PlanRequest named(const std::string& engine) { return {device_named("here"), engine}; }

  std::string unsupported(const PlanRequest& request) {
    return test::error_of<Unsupported>([&] { planner.make_plan(problem, request); });
  }
};

TEST_F(Choose, TheFirstThatCan) {
  EXPECT_EQ(planner.make_plan(problem, here).engine, "fast");
  EXPECT_EQ(planner.explain(problem, here, false)->why, "fast is the fastest of those that can");
}

// Under CUDA graph capture nothing can be built.
TEST_F(Choose, NothingIsBuiltWhereItMayNot) {
  PlanRequest captured = here;
  captured.may_build = false;
  EXPECT_THROW(planner.make_plan(problem, captured), DeviceError);
  EXPECT_EQ(fast.compiled, 0);
  planner.make_plan(problem, here);
  EXPECT_EQ(planner.make_plan(problem, captured).engine, "fast");
  EXPECT_EQ(fast.compiled, 1);
}

TEST_F(Choose, TheNextWhereTheFirstRefuses) {
  fast.verdict = [](const Baked&) { return refusal("too_large"); };
  EXPECT_EQ(planner.make_plan(problem, here).engine, "slow");
  EXPECT_EQ(fast.compiled, 0);
}

TEST_F(Choose, TheFasterByCost) {
  fast.verdict = [](const Baked&) { return Verdict{Answer::Expected, {}, 2e-3, ""}; };
  slow.verdict = [](const Baked&) { return Verdict{Answer::Expected, {}, 1e-3, ""}; };
  EXPECT_EQ(planner.make_plan(problem, here).engine, "slow");
}

TEST_F(Choose, TheReferenceOnlyWhenNamed) {
  fast.verdict = slow.verdict = [](const Baked&) { return refusal("too_large"); };
  const std::string text = unsupported(here);
  EXPECT_NE(text.find("no fast engine can run this; exact can, but runs only when it is named"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("limit of too_large"), std::string::npos) << text;
  EXPECT_EQ(exact.compiled, 0);
  EXPECT_EQ(planner.make_plan(problem, named("exact")).engine, "exact");
}

TEST_F(Choose, ByTheEnvironment) {
  setenv("FOVEA_ENGINE", "slow", 1);
  EXPECT_EQ(planner.make_plan(problem, here).engine, "slow");
  EXPECT_EQ(planner.explain(problem, here, false)->why, "slow is named by FOVEA_ENGINE");
  EXPECT_EQ(planner.make_plan(problem, named("fast")).engine, "fast");  // the caller has the word
}

TEST_F(Choose, UnknownNamesSuggestTheNearest) {
  EXPECT_EQ(test::error_of<InvalidArgument>([&] { planner.make_plan(problem, named("fsat")); }),
            "engine 'fsat' is unknown; did you mean 'fast'? (engines: fast, slow, exact)");
  setenv("FOVEA_ENGINE", "quantum", 1);
  EXPECT_EQ(test::error_of<InvalidArgument>([&] { planner.explain(problem, here, false); }),
            "FOVEA_ENGINE: engine 'quantum' is unknown (engines: fast, slow, exact)");
}

TEST_F(Choose, ANamedEngineIsNotReplaced) {
  fast.verdict = [](const Baked&) { return refusal("too_large"); };
  const std::string text = unsupported(named("fast"));
  EXPECT_NE(text.find("fast is named, but cannot run this"), std::string::npos) << text;
  EXPECT_EQ(slow.compiled, 0);
}

TEST_F(Choose, AnEngineThatRefusesToCompileIsNoted) {
  fast.while_compiling = [] { throw Unsupported("the library said NOT_SUPPORTED"); };
  EXPECT_EQ(planner.make_plan(problem, here).engine, "slow");
  EXPECT_EQ(planner.make_plan(problem, here).engine, "slow");
  EXPECT_EQ(fast.compiled, 1);  // not tried again
  const auto explanation = planner.explain(problem, here, false);
  const Verdict& verdict = explanation->find("fast")->verdict;
  EXPECT_EQ(verdict.answer, Answer::No);
  ASSERT_EQ(verdict.reasons.size(), 1u);
  EXPECT_EQ(verdict.reasons[0].code, "refused_to_compile");
  EXPECT_EQ(describe(verdict.reasons[0]), "the library said NOT_SUPPORTED");
  EXPECT_NE(unsupported(named("fast")).find("NOT_SUPPORTED"), std::string::npos);
}

TEST_F(Choose, MemoKeepsAChoiceAndItsPlan) {
  const PlannedCall first = planner.make_plan(problem, here);
  const int judged = fast.judged;
  const PlannedCall second = planner.make_plan(problem, here);
  planner.explain(problem, here, false);
  EXPECT_EQ(first.plan, second.plan);
  EXPECT_EQ(first.literals, second.literals);
  EXPECT_EQ(fast.judged, judged);
  EXPECT_EQ(planner.cache().statistics().hits, 1u);
}

TEST_F(Choose, AClearedCacheBuildsAgain) {
  const PlannedCall first = planner.make_plan(problem, here);
  planner.cache().clear();
  const PlannedCall second = planner.make_plan(problem, here);
  EXPECT_NE(first.plan, second.plan);
  EXPECT_EQ(fast.compiled, 2);
}

TEST_F(Choose, ManyProblemsDoNotFillTheMemory) {
  fast.bakes_sizes = false;
  for (int i = 1; i <= 5000; ++i) {
    problem.sizes.sq = i;
    planner.make_plan(problem, here);
  }
  EXPECT_EQ(fast.compiled, 1);
  EXPECT_EQ(planner.cache().statistics().plans, 1u);
}

TEST_F(Choose, TheSameStructureIsTheSamePlanWhoeverWroteIt) {
  const auto make = [&](const char* words) {
    problem.program = problem_of(words).program;
    return planner.make_plan(problem, here);
  };
  const PlannedCall one = make("mod=\"score + x\" scalar=x"),
                    same = make("mod=\"y  + score\" scalar=y");
  EXPECT_EQ(one.plan, same.plan);
  EXPECT_NE(one.plan, make("mod=\"score - x\" scalar=x").plan);
  EXPECT_NE(one.plan, make("mod=\"score + x\" scalar=x:i32").plan);
}

TEST_F(Choose, ARedefinedFormulaIsAnother) {
  const auto make = [&](const char* mod) {
    problem.program = problem_of(std::string("mod=\"") + mod + "\"").program;
    return planner.make_plan(problem, here);
  };
  const PlannedCall before = make("tanh(score)"), after = make("sin(score)");
  EXPECT_NE(before.plan, after.plan);
  // A new float literal is a value, not a plan.
  const PlannedCall three = make("score * 3.5"), four = make("score * 4.25");
  EXPECT_EQ(three.plan, four.plan);
  EXPECT_EQ(three.literals, std::vector<float>{3.5f});
  EXPECT_EQ(four.literals, std::vector<float>{4.25f});
}

TEST_F(Choose, ProbeAndCallSeeTheSameValueAndAProbeBuildsNothing) {
  problem.deterministic = true;
  planner.explain(problem, here, false);
  EXPECT_EQ(fast.compiled, 0);
  EXPECT_EQ(fast.proven, 0);
  const Baked probed = fast.last_judged;
  planner.make_plan(problem, here);
  EXPECT_EQ(fast.last_compiled, probed);
  EXPECT_TRUE(probed.problem.deterministic);
  EXPECT_EQ(probed.problem.sizes, problem.sizes);
}

TEST_F(Choose, ASmallerBatchNeedsNoNewPlan) {
  fast.bakes_sizes = false;
  planner.make_plan(problem, here);
  problem.sizes.b = 1;
  planner.make_plan(problem, here);
  EXPECT_EQ(fast.compiled, 1);
  fast.bakes_sizes = true;  // an engine that bakes it shows every build
  problem.sizes.b = 3;
  planner.make_plan(problem, here);
  EXPECT_EQ(planner.cache().statistics().builds, 2u);
}

TEST_F(Choose, OnlyUnsupportedMovesOn) {
  fast.while_compiling = [] { throw DeviceError("cudnn: CUDNN_STATUS_BAD_PARAM"); };
  EXPECT_THROW(planner.make_plan(problem, here), DeviceError);
  EXPECT_EQ(slow.compiled, 0);
  fast.while_compiling = [] { throw InternalError("broken"); };
  EXPECT_THROW(planner.make_plan(problem, here), InternalError);
  EXPECT_EQ(slow.compiled, 0);
  fast.while_compiling = [] {};
  EXPECT_EQ(planner.make_plan(problem, here).engine, "fast");  // an error is not remembered
}

TEST_F(Choose, ProvingAsksTheEngineToProve) {
  const auto explanation = planner.explain(problem, here, true);
  EXPECT_EQ(fast.proven, 1);
  EXPECT_EQ(explanation->find("fast")->verdict.answer, Answer::Proven);
}

TEST(Planner, TheProcessHasTheReferenceEngine) {
  PlanRequest request{cpu_device(), "reference"};
  const PlannedCall call = planner().make_plan(problem_of(line), request);
  EXPECT_EQ(call.engine, "reference");
  EXPECT_EQ(planner().make_plan(problem_of(line), {cpu_device(), ""}).engine, "cpu");
  const std::string only_there = line + std::string(" dtype=f64");
  EXPECT_THROW(planner().make_plan(problem_of(only_there), {cpu_device(), ""}), Unsupported);
}

}  // namespace
}  // namespace fovea

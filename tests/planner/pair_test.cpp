// Forward and backward of a training pair are chosen together.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <thread>

#include "base/error.h"
#include "tests/error_of.h"
#include "tests/planner/fake_engine.h"
#include "tests/store/storing_engine.h"

namespace fovea {
namespace {

using namespace testing;

Verdict able(double cost = 0) { return {Answer::Expected, {}, cost, ""}; }

// What an engine says by direction.
auto by_direction(const Verdict& forward, const Verdict& backward) {
  return [=](const Baked& baked) {
    return baked.problem.direction == Direction::Forward ? forward : backward;
  };
}

class Pair : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("FOVEA_ENGINE"); }

  void use(const std::string& line) {
    ProblemLine parsed = parse_problem_line(line + " direction=both");
    forward = std::make_shared<const Problem>(std::move(*parsed.forward));
    backward = std::make_shared<const Problem>(std::move(*parsed.backward));
  }
  PlanRequest with(std::shared_ptr<const Problem> partner, const std::string& engine = "") {
    return {device_named("here"), engine, std::move(partner)};
  }
  std::string forward_engine() { return planner.make_plan(*forward, with(backward)).engine; }
  std::string backward_engine() { return planner.make_plan(*backward, with(forward)).engine; }

  FakeEngine fast{"fast"}, slow{"slow"}, exact{"exact"};
  Planner planner{{{&fast, false}, {&slow, false}, {&exact, true}}};
  std::shared_ptr<const Problem> forward, backward;
  std::thread::id asking_ = std::this_thread::get_id();
};

TEST_F(Pair, TheFirstThatCanRunBoth) {
  use("h=2 sq=8 d=4");
  EXPECT_EQ(forward_engine(), "fast");
  EXPECT_EQ(backward_engine(), "fast");
  EXPECT_EQ(planner.explain(*forward, with(backward), false)->why,
            "fast is the fastest of those that can run both directions");
}

TEST_F(Pair, AnEngineWithoutTheBackwardDoesNotGetTheForward) {
  use("h=2 sq=8 d=4");
  fast.verdict = by_direction(able(), refusal("no_backward"));
  EXPECT_EQ(forward_engine(), "slow");
  EXPECT_EQ(backward_engine(), "slow");
  EXPECT_EQ(fast.compiled, 0);
  // A forward that stands alone is another question, also for the memory of choices.
  EXPECT_EQ(planner.make_plan(*forward, with(nullptr)).engine, "fast");
  EXPECT_EQ(forward_engine(), "slow");
}

TEST_F(Pair, EachDirectionHasTheEngineThatIsFasterAtIt) {
  use("h=2 sq=8 d=4");
  fast.verdict = by_direction(able(1e-3), able(9e-3));
  slow.verdict = by_direction(able(2e-3), able(3e-3));
  EXPECT_EQ(forward_engine(), "fast");
  EXPECT_EQ(backward_engine(), "slow");
  EXPECT_EQ(planner.explain(*forward, with(backward), false)->why,
            "fast is the fastest of those that can; at the backward of the pair slow is");
  EXPECT_EQ(planner.explain(*backward, with(forward), false)->why,
            "slow is the fastest of those that can; at the forward of the pair fast is");
  EXPECT_EQ(planner.make_plan(*forward, with(nullptr)).engine, "fast");
}

TEST_F(Pair, TheCostOfBothDecidesWhereOneEngineMustRunBoth) {
  use("h=2 sq=8 d=4 dropout=0.5 rng=engine");
  fast.verdict = by_direction(able(1e-3), able(9e-3));
  slow.verdict = by_direction(able(2e-3), able(3e-3));
  EXPECT_EQ(forward_engine(), "slow");
  EXPECT_EQ(backward_engine(), "slow");
}

TEST_F(Pair, TwoEnginesShareWhatNoneCanRunAlone) {
  use("h=2 sq=8 d=4");
  fast.verdict = by_direction(able(), refusal("no_backward"));
  slow.verdict = by_direction(refusal("no_forward"), able());
  EXPECT_EQ(forward_engine(), "fast");
  EXPECT_EQ(backward_engine(), "slow");
  EXPECT_EQ(planner.explain(*forward, with(backward), false)->why,
            "fast is the fastest of those that can; none of them can run the backward of the pair "
            "too");
}

TEST_F(Pair, AnEnginesOwnRandomNumbersAreNotShared) {
  use("h=2 sq=8 d=4 dropout=0.5 rng=engine");
  fast.verdict = by_direction(able(), refusal("no_backward"));
  slow.verdict = by_direction(refusal("no_forward"), able());
  const std::string text = test::error_of<Unsupported>([&] { forward_engine(); });
  EXPECT_NE(text.find("both directions of this pair"), std::string::npos) << text;
  EXPECT_NE(text.find("not the other direction: "), std::string::npos) << text;
}

TEST_F(Pair, ThePlanOfAPinnedPartnerIsBuiltFirst) {
  use("h=2 sq=8 d=4 dropout=0.5 rng=engine");
  int builds = 0;
  fast.while_compiling = [&] {
    if (++builds == 2) throw Unsupported("the library has no backward after all");
  };
  EXPECT_EQ(forward_engine(), "slow");  // before anything has run
  EXPECT_EQ(backward_engine(), "slow");
  EXPECT_THROW(planner.make_plan(*forward, with(backward, "fast")), Unsupported);
}

TEST_F(Pair, ABackwardThatRefusesToCompileMovesTheForwardToo) {
  use("h=2 sq=8 d=4");
  EXPECT_EQ(forward_engine(), "fast");
  fast.while_compiling = [] { throw Unsupported("no backward after all"); };
  EXPECT_EQ(backward_engine(), "slow");
  EXPECT_EQ(forward_engine(), "slow");
}

// Each of two threads gets past the barrier only if the other one is compiling too.
TEST_F(Pair, IsBuiltAtOnceWhereTheEngineGainsByIt) {
  use("h=2 sq=8 d=4");
  fast.pairs_at_once = true;
  fast.record = false;
  std::barrier together(2);
  fast.while_compiling = [&] { together.arrive_and_wait(); };
  EXPECT_EQ(forward_engine(), "fast");
  EXPECT_EQ(fast.compiled, 2);
  fast.while_compiling = [] { FAIL() << "compiled again"; };
  EXPECT_EQ(backward_engine(), "fast");
  EXPECT_EQ(planner.cache().statistics().builds, 2);
}

TEST_F(Pair, AForwardAloneOrABackwardBuildsItselfOnly) {
  use("h=2 sq=8 d=4");
  fast.pairs_at_once = true;
  planner.make_plan(*forward, with(nullptr));
  EXPECT_EQ(fast.compiled, 1);
  use("h=2 sq=16 d=4");
  backward_engine();
  EXPECT_EQ(fast.compiled, 2);
}

TEST_F(Pair, WhatFailsBesideTheForwardIsSaidWhenItIsAskedFor) {
  use("h=2 sq=8 d=4");
  fast.pairs_at_once = true;
  fast.record = false;
  std::atomic<int> number{0};
  fast.while_compiling = [&] {
    if (std::this_thread::get_id() != asking_) throw InternalError("no backward today");
    ++number;
  };
  EXPECT_EQ(forward_engine(), "fast");
  EXPECT_EQ(number, 1);
  EXPECT_EQ(backward_engine(), "fast");
  EXPECT_EQ(number, 2);
}

// Lowering a formula for a library costs more than all else before a build.
TEST_F(Pair, EachDirectionIsBakedAndJudgedOnceByEachEngine) {
  for (const bool at_once : {false, true}) {
    use(at_once ? "h=2 sq=8 d=4" : "h=2 sq=16 d=4");
    fast.pairs_at_once = at_once;
    fast.record = false;
    for (FakeEngine* engine : {&fast, &slow, &exact}) engine->bakes = engine->judged = 0;
    EXPECT_EQ(forward_engine(), "fast");
    EXPECT_EQ(backward_engine(), "fast");
    for (const FakeEngine* engine : {&fast, &slow, &exact}) {
      EXPECT_EQ(engine->bakes, 2) << engine->name();
      EXPECT_EQ(engine->judged, 2) << engine->name();
    }
  }
}

TEST_F(Pair, ANamedEngineIsTakenAndTheTableSaysWhatItLacks) {
  use("h=2 sq=8 d=4");
  fast.verdict = by_direction(able(), refusal("no_backward"));
  const PlanRequest request = with(backward, "fast");
  EXPECT_EQ(planner.make_plan(*forward, request).engine, "fast");
  const auto explanation = planner.explain(*forward, request, false);
  EXPECT_EQ(explanation->why, "fast is named; it cannot run the backward of the pair");
  const std::string table = to_table(*forward, request, *explanation);
  EXPECT_NE(table.find("pair     with "), std::string::npos) << table;
  EXPECT_NE(table.find("not the other direction: "), std::string::npos) << table;
  const std::string json = to_json(*forward, request, *explanation);
  EXPECT_NE(json.find("\"partner\""), std::string::npos) << json;
  EXPECT_NE(json.find("no_backward"), std::string::npos) << json;
}

TEST_F(Pair, TheReferenceOnlyWhenNamed) {
  use("h=2 sq=8 d=4");
  fast.verdict = slow.verdict = by_direction(refusal("too_large"), refusal("too_large"));
  const std::string text = test::error_of<Unsupported>([&] { forward_engine(); });
  EXPECT_NE(text.find("exact can, but runs only when it is named"), std::string::npos) << text;
}

// Plans compiled ahead: which engines, which blobs, and what is said if there are none.

using namespace fovea::testing;

std::string unsupported(Planner& planner, const Problem& problem, const PlanRequest& request) {
  return test::error_of<Unsupported>([&] { planner.compile_ahead(problem, request); });
}

class Ahead : public ::testing::Test {
 protected:
  Ahead() { use_own_folder(); }

  FakeEngine plain{"plain"};
  StoringEngine storing;
  Planner planner{{{&plain}, {&storing}}};
  PlanRequest request{find_device("h200"), ""};
};

TEST_F(Ahead, TakesWhatEnginesKeep) {
  const Problem problem = problem_of("h=2 sq=9 d=4 mask=causal");
  const auto first = planner.compile_ahead(problem, request);
  ASSERT_EQ(first.size(), 1U);  // the other one keeps nothing
  EXPECT_EQ(first[0].engine, "fake");
  ASSERT_EQ(first[0].blobs.size(), 1U);
  EXPECT_EQ(first[0].blobs[0].origin, store::Origin::Built);
  EXPECT_EQ(first[0].blobs[0].key.environment, "fake 1.0 sm_90");
  // Again: found, and taken all the same. The cache of plans is not asked.
  const auto second = planner.compile_ahead(problem, request);
  EXPECT_EQ(second.at(0).blobs.at(0).origin, store::Origin::Disk);
  EXPECT_EQ(second[0].blobs[0].blob, first[0].blobs[0].blob);
  EXPECT_EQ(storing.built, 1);
  EXPECT_EQ(planner.cache().statistics().builds, 0U);
}

TEST_F(Ahead, SaysWhyNot) {
  const std::string text = unsupported(planner, problem_of("h=2 sq=9 d=300"), request);
  EXPECT_NE(text.find("no engine can compile this ahead"), std::string::npos) << text;
  EXPECT_EQ(text.find("plain"), std::string::npos) << text;  // it has nothing to say here
  EXPECT_NE(text.find("limit of d_too_large"), std::string::npos) << text;
}

TEST_F(Ahead, AnEngineThatIsNamedIsTheOnlyOne) {
  request.engine = "plain";
  const std::string text = unsupported(planner, problem_of("h=2 sq=9 d=4"), request);
  EXPECT_NE(text.find("its plans live in their process only"), std::string::npos) << text;
  EXPECT_EQ(text.find("fake"), std::string::npos) << text;
  EXPECT_EQ(plain.compiled, 0);
  request.engine = "fake";
  EXPECT_EQ(planner.compile_ahead(problem_of("h=2 sq=9 d=5"), request).size(), 1U);
  request.engine = "fkae";
  EXPECT_THROW(planner.compile_ahead(problem_of("h=2 sq=9 d=5"), request), InvalidArgument);
}

TEST_F(Ahead, WithoutAnEngineThatKeepsPlansItSaysSo) {
  Planner host({{&plain}});
  const std::string text = unsupported(host, problem_of("h=2 sq=9 d=4"), request);
  EXPECT_NE(text.find("this Fovea has no engine that keeps plans in files"), std::string::npos)
      << text;
}

TEST_F(Ahead, AnEngineThatRefusesToCompileIsQuoted) {
  storing.while_compiling = [] { throw Unsupported("the library says no"); };
  const std::string text = unsupported(planner, problem_of("h=2 sq=9 d=6"), request);
  EXPECT_NE(text.find("the library says no"), std::string::npos) << text;
}

TEST_F(Ahead, StoredPlansAreJudgedByTheirEngine) {
  EXPECT_EQ(planner.refuse_stored("fake", "fake 1.0 sm_90"), "");
  EXPECT_EQ(planner.refuse_stored("fake", "fake 2.0 sm_90"),
            "its plans are for fake 2.0 sm_90, here is fake 1.0 sm_90");
  EXPECT_EQ(planner.refuse_stored("plain", "x"), "engine plain keeps no plans in files");
  EXPECT_EQ(planner.refuse_stored("none", "x"), "this Fovea has no engine none");
}

}  // namespace
}  // namespace fovea

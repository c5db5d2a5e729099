// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/stream_capture.hpp>

#include <capture/test_device.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace reprise;
using test::TestDevice;

namespace {

struct Fixture {
  DeviceCaptures captures;
  StreamCapture stream{captures, 1};

  void open(StreamId owner = 7) {
    REQUIRE(stream.prepare(owner));
    REQUIRE(stream.begin());
  }
};

template <class T>
bool says(const Result<T>& result, const std::string& words) {
  if (result) return false;
  INFO(result.error().message);
  return result.error().code == Errc::capture_order &&
         std::string(result.error().message).find(words) != std::string::npos;
}

FailurePtr some_failure(const char* node = "add_one") {
  return make_failure(Errc::refused, "launch", node, "no");
}

std::shared_ptr<const void> some_bytes() {
  return std::make_shared<const std::uint32_t>(42);
}

}  // namespace

TEST_CASE_METHOD(Fixture, "begin and end without a capture err and change nothing",
                 "[capture][B61]") {
  CHECK(says(stream.begin(), "start_capture: no capture is prepared"));
  CHECK(says(stream.end(7), "stop_capture: no capture is recording"));
  CHECK_FALSE(stream.is_active());
  CHECK_FALSE(stream.is_recording());
  CHECK(stream.owner() == 0);
  CHECK_FALSE(stream.device().any_recording());
  CHECK(stream.prepare(7));
}

TEST_CASE_METHOD(Fixture, "a prepared capture refuses a second prepare and an end",
                 "[capture][B62]") {
  REQUIRE(stream.prepare(7));
  CHECK(stream.is_active());
  CHECK_FALSE(stream.is_recording());
  CHECK(says(stream.prepare(7), "prepare_capture: a capture is prepared already"));
  CHECK(says(stream.end(7), "stop_capture: the capture is prepared but was never started"));
  CHECK(stream.is_active());
}

TEST_CASE_METHOD(Fixture, "a recording capture refuses a second begin and a prepare",
                 "[capture][B63]") {
  REQUIRE(stream.prepare(7));
  REQUIRE(stream.begin());
  CHECK(stream.is_recording());
  CHECK(says(stream.begin(), "start_capture: a capture is recording already"));
  CHECK(says(stream.prepare(7), "prepare_capture: a capture is recording already"));
  CHECK(stream.is_recording());
}

TEST_CASE_METHOD(Fixture, "end closes the window", "[capture][B64]") {
  open();
  auto end = stream.end(7);
  REQUIRE(end);
  CHECK(*end == CaptureEnd{CaptureEnd::Kind::owned, 7});
  CHECK_FALSE(stream.is_active());
  CHECK_FALSE(stream.is_recording());
}

TEST_CASE_METHOD(Fixture, "a refused prepare changes nothing so that begin still succeeds",
                 "[capture][B65]") {
  REQUIRE(stream.prepare(7));
  REQUIRE_FALSE(stream.prepare(8, true));
  CHECK(stream.owner() == 7);
  REQUIRE(stream.begin());
  CHECK(stream.owner() == 7);
  CHECK(stream.page_update() == PageUpdate::forbidden);
  CHECK(stream.device().is_capturing(7));
  CHECK_FALSE(stream.device().is_capturing(8));
}

TEST_CASE_METHOD(Fixture, "abort gives up a prepared or recording capture and another may follow",
                 "[capture][B66]") {
  REQUIRE(stream.prepare(7));
  stream.abort();
  CHECK_FALSE(stream.is_active());
  open();
  stream.abort();
  CHECK_FALSE(stream.is_active());
  CHECK(stream.owner() == 0);
  stream.abort();
  CHECK(stream.prepare(8));
  CHECK(stream.owner() == 8);
}

TEST_CASE_METHOD(Fixture, "the cache pins what it builds from prepare to end", "[capture][B67]") {
  CHECK(stream.cache_mode() == CacheMode::normal);
  REQUIRE(stream.prepare(7));
  CHECK(stream.cache_mode() == CacheMode::capture);
  REQUIRE(stream.begin());
  CHECK(stream.cache_mode() == CacheMode::capture);
  REQUIRE(stream.end(7));
  CHECK(stream.cache_mode() == CacheMode::normal);
}

TEST_CASE_METHOD(Fixture, "the owner is known from prepare to end", "[capture][B68]") {
  CHECK(stream.owner() == 0);
  REQUIRE(stream.prepare(7));
  CHECK(stream.owner() == 7);
  REQUIRE(stream.begin());
  CHECK(stream.owner() == 7);
  REQUIRE(stream.end(7));
  CHECK(stream.owner() == 0);
}

TEST_CASE_METHOD(Fixture, "a window closed by another stream is abandoned", "[capture][B69]") {
  open(7);
  auto end = stream.end(8);
  REQUIRE(end);
  CHECK(*end == CaptureEnd{CaptureEnd::Kind::abandoned, 7});
  CHECK_FALSE(stream.is_active());
  // And so there is a failure to tell instead of a graph.
  CHECK(close_failure(*end, 8, nullptr) != nullptr);
}

TEST_CASE_METHOD(Fixture, "a late owner does not own the window that a neighbour opened since",
                 "[capture][B70]") {
  open(7);
  REQUIRE(stream.end(8));
  open(8);
  auto late = stream.end(7);
  REQUIRE(late);
  CHECK(*late == CaptureEnd{CaptureEnd::Kind::abandoned, 8});
}

TEST_CASE_METHOD(Fixture, "each recorded buffer comes back once and only once", "[capture][B71]") {
  TestDevice device;
  const HoldRange a{device.make(64), {0, 64}};
  const HoldRange b{device.make(64), {0, 64}};
  const HoldRange c{device.make(64), {0, 64}};
  open();
  stream.record(std::vector{a, b});
  stream.record(std::vector{b, c});
  stream.record(std::vector{a});
  REQUIRE(stream.end(7));

  const auto recorded = stream.take_recorded();
  REQUIRE(recorded.size() == 3);
  CHECK(recorded[0].hold == a.hold);
  CHECK(recorded[1].hold == b.hold);
  CHECK(recorded[2].hold == c.hold);
  CHECK(recorded[2].range == c.range);
  CHECK(stream.take_recorded().empty());
}

TEST_CASE_METHOD(Fixture, "a buffer named by thousands of launches comes back once",
                 "[capture][B71]") {
  TestDevice device;
  std::vector<HoldRange> buffers;
  for (int i = 0; i < 200; ++i) buffers.push_back({device.make(16), {0, 16}});
  open();
  for (int i = 0; i < 10'000; ++i) {
    stream.record(std::span{buffers}.subspan(static_cast<std::size_t>(i) * 7 % 199, 2));
    stream.touch(1, {static_cast<std::uint64_t>(i) * 7 % 199, 200});
  }
  REQUIRE(stream.end(7));
  const auto recorded = stream.take_recorded();
  CHECK(recorded.size() == 200);
  // Neither list grew with the launches: 20,000 notes would need twenty times the room.
  CHECK(recorded.capacity() <= 1024);
  const auto touched = stream.take_touched();
  CHECK(touched.size() == 199);
  CHECK(touched.capacity() <= 1024);
}

TEST_CASE_METHOD(Fixture, "what came before the window is not recorded", "[capture][B72]") {
  TestDevice device;
  const HoldRange before{device.make(8), {0, 8}};
  const HoldRange warm{device.make(8), {0, 8}};
  const HoldRange inside{device.make(8), {0, 8}};
  stream.record({&before, 1});
  REQUIRE(stream.prepare(7));
  stream.record({&warm, 1});
  REQUIRE(stream.begin());
  stream.record({&inside, 1});
  REQUIRE(stream.end(7));
  stream.record({&before, 1});

  const auto recorded = stream.take_recorded();
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].hold == inside.hold);
}

TEST_CASE_METHOD(Fixture, "different slices of one allocation are different claims",
                 "[capture][B73]") {
  TestDevice device;
  const HoldRef both = device.make(8);
  const HoldRange front{both, {0, 4}};
  const HoldRange back{both, {4, 8}};
  const HoldRange whole{both, {0, 8}};
  open();
  stream.record({&front, 1});
  stream.record({&back, 1});
  stream.record({&front, 1});
  stream.record({&whole, 1});
  REQUIRE(stream.end(7));

  const auto recorded = stream.take_recorded();
  REQUIRE(recorded.size() == 3);
  CHECK(recorded[0].range == front.range);
  CHECK(recorded[1].range == back.range);
  CHECK(recorded[2].range == whole.range);
}

TEST_CASE_METHOD(Fixture, "a recorded buffer that died before the close is absent",
                 "[capture][B74]") {
  TestDevice device;
  const HoldRange stays{device.make(8), {0, 8}};
  HoldRange dies{device.make(8), {0, 8}};
  open();
  stream.record({&dies, 1});
  stream.record({&stays, 1});
  dies = {};
  CHECK(device.live() == 1);  // The window did not keep it.
  CHECK(device.known() == 2);
  REQUIRE(stream.end(7));

  const auto recorded = stream.take_recorded();
  REQUIRE(recorded.size() == 1);
  CHECK(recorded[0].hold == stays.hold);
  CHECK(device.known() == 1);
}

TEST_CASE_METHOD(Fixture, "retained host bytes are given out once and dropped by abort",
                 "[capture][B75]") {
  const auto bytes = some_bytes();
  open();
  stream.retain_host(bytes, 4);
  REQUIRE(stream.end(7));
  auto retained = stream.take_retained_host();
  REQUIRE(retained.size() == 1);
  CHECK(retained[0].bytes == 4);
  CHECK(retained[0].owner == bytes);
  CHECK(stream.take_retained_host().empty());
  retained.clear();
  CHECK(bytes.use_count() == 1);

  open();
  stream.retain_host(bytes, 4);
  CHECK(bytes.use_count() == 2);
  stream.abort();
  CHECK(bytes.use_count() == 1);
  CHECK(stream.take_retained_host().empty());
}

TEST_CASE("a capture starts empty whatever an aborted or abandoned one left",
          "[capture][B76][I26]") {
  const bool abandoned = GENERATE(false, true);
  CAPTURE(abandoned);
  TestDevice device;
  DeviceCaptures captures;
  StreamCapture stream(captures, 1);
  const HoldRange buffer{device.make(8), {0, 8}};
  const auto bytes = some_bytes();
  REQUIRE(stream.prepare(7));
  REQUIRE(stream.begin());
  stream.record({&buffer, 1});
  stream.touch(1, {0, 8});
  stream.retain_host(bytes, 4);
  stream.fail(some_failure());
  if (abandoned) {
    REQUIRE(stream.end(8));
  } else {
    stream.abort();
  }

  REQUIRE(stream.prepare(9));
  CHECK(bytes.use_count() == 1);
  REQUIRE(stream.begin());
  REQUIRE(stream.end(9));
  CHECK(stream.take_recorded().empty());
  CHECK(stream.take_touched().empty());
  CHECK(stream.take_retained_host().empty());
  CHECK(stream.take_failure() == nullptr);
}

TEST_CASE_METHOD(Fixture, "the error of a doomed and abandoned window tells both",
                 "[capture][B77]") {
  open(7);
  const FailurePtr doom = some_failure();
  stream.fail(doom);
  auto end = stream.end(8);
  REQUIRE(end);

  const FailurePtr error = close_failure(*end, 8, stream.take_failure());
  REQUIRE(error);
  CHECK(error->code == Errc::capture_abandoned);
  CHECK(error->message.find("stream 7") != std::string::npos);
  CHECK(error->message.find("stream 8") != std::string::npos);
  REQUIRE(error->cause == doom);
  CHECK(doom->cause == nullptr);
}

TEST_CASE("closing one's own window tells its doom and nothing when there is none",
          "[capture][B77]") {
  const CaptureEnd owned{CaptureEnd::Kind::owned, 7};
  CHECK(close_failure(owned, 7, nullptr) == nullptr);

  const FailurePtr doom = some_failure();
  const FailurePtr error = close_failure(owned, 7, doom);
  REQUIRE(error);
  CHECK(error->code == Errc::capture_doomed);
  CHECK(error->message == "the recording is missing an operation");
  CHECK(&error->root() == doom.get());
}

TEST_CASE_METHOD(Fixture, "the first failure of a window is the one that stays", "[capture][B78]") {
  open();
  const FailurePtr first = some_failure("first");
  stream.fail(first);
  stream.fail(some_failure("second"));
  REQUIRE(stream.end(7));
  CHECK(stream.take_failure() == first);
  CHECK(stream.take_failure() == nullptr);
}

TEST_CASE_METHOD(Fixture, "a failure outside a window dooms nothing", "[capture][B79]") {
  stream.fail(some_failure());
  REQUIRE(stream.prepare(7));
  stream.fail(some_failure());
  REQUIRE(stream.begin());
  REQUIRE(stream.end(7));
  stream.fail(some_failure());
  CHECK(stream.take_failure() == nullptr);
}

TEST_CASE_METHOD(Fixture, "touched memory is told once and sorted", "[capture][B80]") {
  stream.touch(1, {0, 4});
  REQUIRE(stream.prepare(7));
  stream.touch(1, {4, 8});
  REQUIRE(stream.begin());
  for (int i = 0; i < 100; ++i) {
    stream.touch(2, {256, 512});
    stream.touch(1, {512, 768});
    stream.touch(1, {256, 512});
    stream.touch(1, {256, 300});
    stream.touch(1, {256, 256});
  }
  REQUIRE(stream.end(7));
  stream.touch(1, {8, 12});

  const std::vector<TouchedRange> expected{
      {1, {256, 300}}, {1, {256, 512}}, {1, {512, 768}}, {2, {256, 512}}};
  CHECK(stream.take_touched() == expected);
  CHECK(stream.take_touched().empty());
}

TEST_CASE("a recording stream grows nothing and its neighbours only add", "[capture][B81]") {
  DeviceCaptures captures;
  StreamCapture stream(captures, 1);
  StreamCapture other(captures, 2);
  CHECK(stream.page_update() == PageUpdate::allow);
  REQUIRE(stream.prepare(7));
  CHECK(stream.page_update() == PageUpdate::allow);
  CHECK(other.page_update() == PageUpdate::allow);
  REQUIRE(stream.begin());
  CHECK(stream.page_update() == PageUpdate::forbidden);
  CHECK(other.page_update() == PageUpdate::add_only);
  REQUIRE(stream.end(7));
  CHECK(stream.page_update() == PageUpdate::allow);
  CHECK(other.page_update() == PageUpdate::allow);
}

TEST_CASE("a window opened with growth adds pages and gives none back", "[capture][B81]") {
  DeviceCaptures captures;
  StreamCapture stream(captures, 1);
  REQUIRE(stream.prepare(7, true));
  CHECK(stream.page_update() == PageUpdate::allow);
  REQUIRE(stream.begin());
  CHECK(stream.page_update() == PageUpdate::add_only);
  REQUIRE(stream.end(7));
  // The leave was for that window alone.
  REQUIRE(stream.prepare(7));
  REQUIRE(stream.begin());
  CHECK(stream.page_update() == PageUpdate::forbidden);
}

TEST_CASE_METHOD(Fixture, "primed staging is held until the window opens", "[capture][B82]") {
  const auto staging = some_bytes();
  stream.prime(staging);
  CHECK(staging.use_count() == 1);
  REQUIRE(stream.prepare(7));
  stream.prime(staging);
  stream.prime(staging);
  CHECK(staging.use_count() == 3);
  REQUIRE(stream.begin());
  CHECK(staging.use_count() == 1);
  stream.prime(staging);
  CHECK(staging.use_count() == 1);
  stream.abort();
  REQUIRE(stream.prepare(7));
  stream.prime(staging);
  stream.abort();
  CHECK(staging.use_count() == 1);
}

TEST_CASE("the status of a stream follows its capture from prepare to every kind of end",
          "[capture][B83]") {
  DeviceCaptures captures;
  std::optional<StreamCapture> stream(std::in_place, captures, StreamId{1});
  const CaptureStatus& status = captures.status();
  const auto open = [&] {
    REQUIRE(stream->prepare(7));
    CHECK(status.is_capturing(7));
    CHECK_FALSE(status.any_recording());
    REQUIRE(stream->begin());
    CHECK(status.is_capturing(7));
    CHECK(status.any_recording());
    CHECK_FALSE(status.is_capturing(8));
  };
  const auto closed = [&] { return !status.is_capturing(7) && !status.any_recording(); };

  CHECK(closed());
  open();
  REQUIRE(stream->end(7));
  CHECK(closed());
  open();
  REQUIRE(stream->end(8));
  CHECK(closed());
  open();
  stream->abort();
  CHECK(closed());
  open();
  stream.reset();
  CHECK(closed());
}

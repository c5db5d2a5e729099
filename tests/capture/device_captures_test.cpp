// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/device_captures.hpp>

#include <reprise/capture/stream_capture.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

using namespace reprise;

TEST_CASE("ending and beginning what was never prepared leaves nothing recording",
          "[capture][B84]") {
  DeviceCaptures captures;
  const auto key = captures.enter();

  captures.ended(key);
  captures.began(key);
  CHECK_FALSE(captures.status().any_recording());
  CHECK_FALSE(captures.status().is_capturing(0));

  captures.prepared(key, 7);
  captures.began(key);
  REQUIRE(captures.status().any_recording());
  captures.ended(key);
  captures.ended(key);
  CHECK_FALSE(captures.status().any_recording());
  CHECK_FALSE(captures.status().is_capturing(7));

  // Nothing went below zero meanwhile: the next capture counts as one.
  captures.prepared(key, 7);
  CHECK(captures.status().is_capturing(7));
  CHECK_FALSE(captures.status().any_recording());
  captures.began(key);
  CHECK(captures.status().any_recording());
}

TEST_CASE("calls with a key that was never given or was given back change nothing",
          "[capture][B84]") {
  DeviceCaptures captures;
  const auto gone = captures.enter();
  const auto idle = captures.enter();
  captures.leave(gone);
  captures.leave(gone);
  captures.prepared(gone, 7);
  captures.began(gone);
  captures.prepared(0, 8);
  captures.began(0);
  CHECK_FALSE(captures.status().is_capturing(7));
  CHECK_FALSE(captures.status().is_capturing(8));
  CHECK_FALSE(captures.status().any_recording());
  CHECK(captures.enter() != gone);

  // An entry at rest belongs to no stream, not even to the one without a number.
  captures.prepared(captures.enter(), 9);
  captures.ended(idle);
  CHECK(captures.status().is_capturing(9));
  CHECK_FALSE(captures.status().is_capturing(0));
}

TEST_CASE("the device records while any of its streams does and each stream is told its own",
          "[capture][B85]") {
  constexpr StreamId owner = 1;
  constexpr StreamId other = 2;
  DeviceCaptures captures;
  const auto first = captures.enter();
  const auto second = captures.enter();

  captures.prepared(first, owner);
  captures.prepared(second, other);
  CHECK_FALSE(captures.status().any_recording());
  captures.began(second);
  captures.ended(first);

  CHECK(captures.status().any_recording());
  CHECK(captures.status().is_capturing(other));
  CHECK_FALSE(captures.status().is_capturing(owner));
}

TEST_CASE("everybody who watches a stream sees its capture and none at its neighbour",
          "[capture][B86]") {
  constexpr StreamId pinned = 3'000'001;
  constexpr StreamId neighbour = 3'000'002;
  DeviceCaptures captures;
  StreamCapture stream(captures, pinned);
  const CaptureStatus one = captures.status();
  const CaptureStatus two = stream.device();

  REQUIRE(stream.prepare(pinned));
  CHECK(one.is_capturing(pinned));
  CHECK(two.is_capturing(pinned));
  CHECK_FALSE(one.is_capturing(neighbour));
  CHECK_FALSE(two.is_capturing(neighbour));

  REQUIRE(stream.begin());
  REQUIRE(stream.end(pinned));
  CHECK_FALSE(one.is_capturing(pinned));
  CHECK_FALSE(two.is_capturing(pinned));
}

TEST_CASE("a capture that was prepared and never started errs at its stop and can be unwound",
          "[capture][B87]") {
  constexpr StreamId stream_id = 3'000'003;
  DeviceCaptures captures;
  StreamCapture stream(captures, stream_id);
  REQUIRE(stream.prepare(stream_id));

  const auto stopped = stream.end(stream_id);
  REQUIRE_FALSE(stopped);
  CHECK(stopped.error().code == Errc::capture_order);
  CHECK(captures.status().is_capturing(stream_id));
  stream.abort();
  CHECK_FALSE(captures.status().is_capturing(stream_id));

  REQUIRE(stream.prepare(stream_id));
  REQUIRE(stream.begin());
  CHECK(captures.status().is_capturing(stream_id));
  REQUIRE(stream.end(stream_id));
  CHECK_FALSE(captures.status().is_capturing(stream_id));
}

TEST_CASE("a refused start leaves the status as it was", "[capture][B88]") {
  DeviceCaptures captures;
  StreamCapture stream(captures, 4);
  REQUIRE_FALSE(stream.begin());
  CHECK_FALSE(captures.status().is_capturing(4));
  CHECK_FALSE(captures.status().any_recording());
}

TEST_CASE("status answers while the device thread is blocked", "[capture][B89]") {
  DeviceCaptures captures;
  std::atomic<int> stage{0};
  std::thread device([&] {
    StreamCapture stream(captures, 5);
    if (!stream.prepare(5) || !stream.begin()) return;
    stage = 1;
    stage.notify_one();
    stage.wait(1);  // Blocked in the middle of the window.
  });
  stage.wait(0);
  // If an answer needed the device thread, this would never come back.
  const CaptureStatus status = captures.status();
  CHECK(status.is_capturing(5));
  CHECK_FALSE(status.is_capturing(6));
  CHECK(status.any_recording());
  stage = 2;
  stage.notify_one();
  device.join();
  CHECK_FALSE(status.is_capturing(5));
}

TEST_CASE("a status outlives the device and then nothing captures", "[capture]") {
  std::optional<CaptureStatus> status;
  {
    DeviceCaptures captures;
    StreamCapture stream(captures, 9);
    REQUIRE(stream.prepare(9));
    REQUIRE(stream.begin());
    status = stream.device();
    REQUIRE(status->is_capturing(9));
  }
  CHECK_FALSE(status->is_capturing(9));
  CHECK_FALSE(status->any_recording());
}

TEST_CASE("threads that ask while captures open and close are told what is so",
          "[capture][threads]") {
  DeviceCaptures captures;
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  StreamCapture always(captures, 1);
  REQUIRE(always.prepare(1));
  REQUIRE(always.begin());

  std::vector<std::thread> watchers;
  for (int i = 0; i < 2; ++i) {
    watchers.emplace_back([&] {
      const CaptureStatus status = captures.status();
      while (!done) {
        if (!status.is_capturing(1) || !status.any_recording()) ++wrong;
        if (status.is_capturing(3)) ++wrong;
        (void)status.is_capturing(2);  // Either answer may be right.
      }
    });
  }
  for (int i = 0; i < 2000; ++i) {
    StreamCapture stream(captures, 2);
    if (!stream.prepare(2) || !stream.begin() || !captures.status().is_capturing(2)) ++wrong;
    if (i % 2 == 0 && !stream.end(2)) ++wrong;
  }
  done = true;
  for (auto& watcher : watchers) watcher.join();
  CHECK(wrong == 0);
  CHECK_FALSE(captures.status().is_capturing(2));
}

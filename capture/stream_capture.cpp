// SPDX-License-Identifier: Apache-2.0
#include <reprise/capture/stream_capture.hpp>

#include <algorithm>
#include <cstdio>
#include <new>
#include <tuple>
#include <utility>

namespace reprise {

namespace {

Error wrong_order(const char* message) noexcept {
  return {Errc::capture_order, 0, message};
}

// Below this many notes a list simply grows; from there on it forgets repetitions first.
constexpr std::size_t plain_growth = 64;

template <class T>
bool is_full(const std::vector<T>& list) noexcept {
  return list.size() == list.capacity();
}
template <class T>
std::size_t grown(const std::vector<T>& list) noexcept {
  return std::max<std::size_t>(16, 2 * list.capacity());
}

}  // namespace

FailurePtr close_failure(const CaptureEnd& end, StreamId caller, FailurePtr doom) noexcept {
  if (end.kind == CaptureEnd::Kind::abandoned) {
    char message[160];
    std::snprintf(message, sizeof message,
                  "the window of stream %llu was closed by stream %llu, which does not own it",
                  static_cast<unsigned long long>(end.owner),
                  static_cast<unsigned long long>(caller));
    return make_failure(Errc::capture_abandoned, "stop_capture", {}, message, std::move(doom));
  }
  if (!doom) return nullptr;
  return make_failure(Errc::capture_doomed, "stop_capture", {},
                      "the recording is missing an operation", std::move(doom));
}

StreamCapture::StreamCapture(DeviceCaptures& device, StreamId stream)
    : device_(&device), stream_(stream), key_(device.enter()) {}

StreamCapture::~StreamCapture() {
  device_->leave(key_);
}

Result<void> StreamCapture::prepare(StreamId owner, bool growth_allowed) noexcept {
  if (state_ == State::prepared) {
    return wrong_order("prepare_capture: a capture is prepared already");
  }
  if (state_ == State::recording) {
    return wrong_order("prepare_capture: a capture is recording already");
  }
  clear();
  state_ = State::prepared;
  owner_ = owner;
  growth_allowed_ = growth_allowed;
  device_->prepared(key_, owner);
  return {};
}

Result<void> StreamCapture::begin() noexcept {
  if (state_ == State::none) return wrong_order("start_capture: no capture is prepared");
  if (state_ == State::recording) {
    return wrong_order("start_capture: a capture is recording already");
  }
  state_ = State::recording;
  primed_.clear();
  device_->began(key_);
  return {};
}

Result<CaptureEnd> StreamCapture::end(StreamId caller) noexcept {
  if (state_ == State::none) return wrong_order("stop_capture: no capture is recording");
  if (state_ == State::prepared) {
    return wrong_order("stop_capture: the capture is prepared but was never started");
  }
  const auto kind = caller == owner_ ? CaptureEnd::Kind::owned : CaptureEnd::Kind::abandoned;
  state_ = State::none;
  device_->ended(key_);
  return CaptureEnd{kind, std::exchange(owner_, 0)};
}

void StreamCapture::abort() noexcept {
  state_ = State::none;
  owner_ = 0;
  device_->ended(key_);
  clear();
}

void StreamCapture::clear() noexcept {
  uses_ = 0;
  recorded_.clear();
  touched_.clear();
  retained_.clear();
  primed_.clear();
  failure_ = nullptr;
}

void StreamCapture::doom_without_memory() noexcept {
  fail(make_failure(Errc::out_of_memory, "record", {}, "no host memory for the notes of a window"));
}

void StreamCapture::record(std::span<const HoldRange> buffers) noexcept {
  if (!is_recording()) return;
  for (const HoldRange& buffer : buffers) {
    if (buffer.range.empty() || !buffer.hold) continue;
    if (is_full(recorded_) || live_.capacity() < recorded_.capacity()) {
      if (recorded_.size() >= plain_growth) forget_repeated_records();
      try {
        if (2 * recorded_.size() >= recorded_.capacity()) recorded_.reserve(grown(recorded_));
        live_.reserve(recorded_.capacity());
      } catch (const std::bad_alloc&) {
        doom_without_memory();
        if (is_full(recorded_) || live_.capacity() <= recorded_.size()) return;
      }
    }
    recorded_.push_back({WeakHold{buffer.hold}, buffer.range, uses_++});
  }
}

void StreamCapture::touch(StreamId owner, ByteRange addresses) noexcept {
  if (!is_recording() || addresses.empty()) return;
  if (is_full(touched_)) {
    if (touched_.size() >= plain_growth) forget_repeated_touches();
    try {
      if (2 * touched_.size() >= touched_.capacity()) touched_.reserve(grown(touched_));
    } catch (const std::bad_alloc&) {
      doom_without_memory();
      if (is_full(touched_)) return;
    }
  }
  touched_.push_back({owner, addresses});
}

void StreamCapture::prime(std::shared_ptr<const void> staging) noexcept {
  if (state_ != State::prepared) return;
  try {
    primed_.push_back(std::move(staging));
  } catch (const std::bad_alloc&) {
    // The pool has one slice less at hand; a recorded copy asks it for another.
  }
}

void StreamCapture::retain_host(std::shared_ptr<const void> owner, std::uint64_t bytes) noexcept {
  REPRISE_CHECK(is_recording(), "host bytes are retained only while a window records");
  try {
    retained_.push_back({std::move(owner), bytes});
  } catch (const std::bad_alloc&) {
    doom_without_memory();
  }
}

void StreamCapture::fail(FailurePtr failure) noexcept {
  if (is_recording() && !failure_) failure_ = std::move(failure);
}

std::vector<HoldRange> StreamCapture::take_recorded() noexcept {
  forget_repeated_records();
  live_.clear();
  for (const Recorded& recorded : recorded_) {
    if (HoldRef hold = recorded.hold.lock()) live_.push_back({std::move(hold), recorded.range});
  }
  recorded_.clear();
  return std::exchange(live_, {});
}

std::vector<TouchedRange> StreamCapture::take_touched() noexcept {
  forget_repeated_touches();
  return std::exchange(touched_, {});
}

std::vector<RetainedHost> StreamCapture::take_retained_host() noexcept {
  return std::exchange(retained_, {});
}

FailurePtr StreamCapture::take_failure() noexcept {
  return std::exchange(failure_, nullptr);
}

PageUpdate StreamCapture::page_update() const noexcept {
  if (is_recording() && !growth_allowed_) return PageUpdate::forbidden;
  return device().any_recording() ? PageUpdate::add_only : PageUpdate::allow;
}

void StreamCapture::forget_repeated_records() noexcept {
  const auto claim_key = [](const Recorded& recorded) {
    return std::tuple(reinterpret_cast<std::uintptr_t>(recorded.hold.key()), recorded.range.begin,
                      recorded.range.end);
  };
  std::sort(recorded_.begin(), recorded_.end(), [&](const Recorded& a, const Recorded& b) {
    return std::tuple(claim_key(a), a.first_use) < std::tuple(claim_key(b), b.first_use);
  });
  const auto same = [&](const Recorded& a, const Recorded& b) {
    return claim_key(a) == claim_key(b);
  };
  recorded_.erase(std::unique(recorded_.begin(), recorded_.end(), same), recorded_.end());
  // Back to the order of first use: the addresses of records differ from run to run.
  std::sort(recorded_.begin(), recorded_.end(),
            [](const Recorded& a, const Recorded& b) { return a.first_use < b.first_use; });
}

void StreamCapture::forget_repeated_touches() noexcept {
  const auto key = [](const TouchedRange& touched) {
    return std::tuple(touched.owner, touched.addresses.begin, touched.addresses.end);
  };
  std::sort(touched_.begin(), touched_.end(),
            [&](const TouchedRange& a, const TouchedRange& b) { return key(a) < key(b); });
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
}

}  // namespace reprise

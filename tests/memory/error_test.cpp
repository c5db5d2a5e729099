// SPDX-License-Identifier: Apache-2.0
#include <reprise/memory/error.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

using namespace reprise;

namespace {

constexpr auto first_errc = Errc::invalid_argument;
constexpr auto last_errc = Errc::bad_format;

std::vector<Errc> every_errc() {
  std::vector<Errc> all;
  for (int n = int(first_errc); n <= int(last_errc); ++n) all.push_back(static_cast<Errc>(n));
  return all;
}

}  // namespace

TEST_CASE("every error code has a name of its own", "[memory]") {
  std::set<std::string_view> names;
  for (Errc code : every_errc()) {
    CAPTURE(int(code));
    CHECK(to_string(code) != "unknown");
    CHECK(names.insert(to_string(code)).second);
  }
  CHECK(to_string(static_cast<Errc>(0)) == "unknown");
  CHECK(to_string(static_cast<Errc>(int(last_errc) + 1)) == "unknown");
}

TEST_CASE("an error code and its error_code name the same condition", "[memory]") {
  for (Errc code : every_errc()) {
    const std::error_code error = code;
    CAPTURE(error.message());
    CHECK(error.value() == int(code));
    CHECK(&error.category() == &errc_category());
    CHECK(error.message() == to_string(code));
    CHECK(error == code);
    CHECK(static_cast<Errc>(error.value()) == code);
  }
  CHECK(std::string(errc_category().name()) == "reprise");
}

TEST_CASE("codes that the standard library knows compare equal to its conditions", "[memory]") {
  CHECK(std::error_code(Errc::out_of_memory) == std::errc::not_enough_memory);
  CHECK(std::error_code(Errc::operation_aborted) == std::errc::operation_canceled);
  CHECK(std::error_code(Errc::timed_out) == std::errc::timed_out);
  CHECK(std::error_code(Errc::would_deadlock) == std::errc::resource_deadlock_would_occur);
  CHECK(std::error_code(Errc::would_block) == std::errc::operation_would_block);
  CHECK(std::error_code(Errc::invalid_argument) == std::errc::invalid_argument);
  CHECK(std::error_code(Errc::skipped) != std::errc::operation_canceled);
}

TEST_CASE("a failure tells verb and node and code and message", "[memory]") {
  const FailurePtr failure = make_failure(Errc::kernel_failed, "launch", "add_one", "threw 7");
  CHECK(failure->text() == "launch of 'add_one': kernel_failed: threw 7");

  std::ostringstream out;
  out << *failure;
  CHECK(out.str() == failure->text());

  CHECK(make_failure(Errc::closed, "", "", "")->text() == "closed");
  CHECK(make_failure(Errc::closed, "read", "", "")->text() == "read: closed");
  CHECK(make_failure(Errc::closed, "", "k", "gone")->text() == " of 'k': closed: gone");
}

TEST_CASE("a failure keeps the driver's own number", "[memory]") {
  FailureRecord record;
  record.code = Errc::out_of_memory;
  record.native_code = 2;
  record.verb = "allocate";
  const FailurePtr failure = make_failure(std::move(record));
  CHECK(failure->native_code == 2);
  CHECK(failure->text() == "allocate: out_of_memory (code 2)");
}

TEST_CASE("a failure tells its causes down to the root", "[memory]") {
  const FailurePtr root = make_failure(Errc::kernel_failed, "launch", "mul", "divided by zero");
  const FailurePtr middle = make_failure(Errc::skipped, "launch", "add", "input is bad", root);
  const FailurePtr top = make_failure(Errc::skipped, "read", "", "bytes [0, 64)", middle);

  CHECK(&top->root() == root.get());
  CHECK(&root->root() == root.get());
  CHECK(top->text() ==
        "read: skipped: bytes [0, 64); because launch of 'add': skipped: input is bad; because "
        "launch of 'mul': kernel_failed: divided by zero");
}

TEST_CASE("a cause lives as long as a failure that names it", "[memory]") {
  FailurePtr root = make_failure(Errc::refused, "launch", "", "");
  const std::weak_ptr<const FailureRecord> watch = root;
  FailurePtr top = make_failure(Errc::skipped, "read", "", "", root);
  root.reset();
  REQUIRE_FALSE(watch.expired());
  CHECK(top->root().code == Errc::refused);
  top.reset();
  CHECK(watch.expired());
}

TEST_CASE("failure ids never repeat whatever threads make them", "[memory]") {
  constexpr int threads = 4;
  constexpr int each = 1000;
  std::vector<std::vector<std::uint64_t>> made(threads);
  std::vector<std::thread> makers;
  for (int t = 0; t < threads; ++t) {
    makers.emplace_back([&ids = made[t]] {
      for (int i = 0; i < each; ++i) {
        ids.push_back(i % 2 == 0 ? make_failure(Errc::closed, "read", "", "")->id
                                 : make_failure(FailureRecord{})->id);
      }
    });
  }
  for (auto& maker : makers) maker.join();

  std::set<std::uint64_t> seen;
  for (const auto& ids : made) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      seen.insert(ids[i]);
      if (i > 0) REQUIRE(ids[i] > ids[i - 1]);
    }
  }
  CHECK(seen.size() == std::size_t(threads) * each);
  CHECK(seen.count(0) == 0);
}

TEST_CASE("an id and a time are given by the library and not by the caller", "[memory]") {
  const auto before = std::chrono::steady_clock::now();
  FailureRecord record;
  record.id = 0xdead;
  const FailurePtr failure = make_failure(std::move(record));
  CHECK(failure->id != 0xdead);
  CHECK(failure->time >= before);
  CHECK(failure->time <= std::chrono::steady_clock::now());
}

TEST_CASE("a thrown failure can be caught as a system_error that knows its condition", "[memory]") {
  const FailurePtr record = make_failure(Errc::size_mismatch, "write", "", "8 bytes into 4");
  try {
    throw Failure(record);
  } catch (const std::system_error& error) {
    CHECK(error.code() == Errc::size_mismatch);
    CHECK(std::string(error.what()).find("write: size_mismatch: 8 bytes into 4") == 0);
    const auto* failure = dynamic_cast<const Failure*>(&error);
    REQUIRE(failure != nullptr);
    CHECK(failure->errc() == Errc::size_mismatch);
    CHECK(failure->shared_record() == record);
    CHECK(&failure->record() == record.get());
  }
  const Failure plain(Errc::closed, "read", "the runtime is gone");
  CHECK(plain.record().text() == "read: closed: the runtime is gone");
}

TEST_CASE("a source location is the line of the caller", "[memory]") {
  const SourceLocation here = SourceLocation::current();
  CHECK(here.line == __LINE__ - 1);
  CHECK(std::string(here.file).find("error_test.cpp") != std::string::npos);
}

TEST_CASE("a result holds a value or an error and never both", "[memory]") {
  Result<int> good = 7;
  REQUIRE(good);
  CHECK(good.has_value());
  CHECK(good.value() == 7);
  CHECK(*good == 7);
  *good = 8;
  CHECK(std::as_const(good).value() == 8);

  const Result<int> bad = Error{Errc::never_fits, 3, "too large"};
  REQUIRE_FALSE(bad);
  CHECK_FALSE(bad.has_value());
  CHECK(bad.error().code == Errc::never_fits);
  CHECK(bad.error().native_code == 3);
  CHECK(std::string(bad.error().message) == "too large");

  const Result<int> short_form = Errc::closed;
  REQUIRE_FALSE(short_form);
  CHECK(short_form.error().code == Errc::closed);
}

TEST_CASE("a result moves what it holds out and into a caller", "[memory]") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  REQUIRE(result);
  const std::unique_ptr<int> taken = std::move(result).value();
  REQUIRE(taken);
  CHECK(*taken == 5);
  REQUIRE(result.has_value());
  CHECK(*result == nullptr);

  Result<std::string> text = std::string("four");
  CHECK(text->size() == 4);
}

TEST_CASE("a result without a value is either success or an error", "[memory]") {
  const Result<void> good;
  CHECK(good);
  CHECK(good.has_value());

  const Result<void> bad = Errc::device_lost;
  REQUIRE_FALSE(bad);
  CHECK_FALSE(bad.has_value());
  CHECK(bad.error().code == Errc::device_lost);
  CHECK(Result<void>(Error{Errc::refused, 9}).error().native_code == 9);
}

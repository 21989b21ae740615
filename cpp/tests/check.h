// A test is TEST(name) { CHECK(...); NEAR(a, b); THROWS(expr, "part of the message"); }; main() runs all of them.
#pragma once

#include <cmath>
#include <exception>
#include <functional>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace check {

struct Case {
  std::string name;
  std::function<void()> body;
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;  // filled while the program loads, read by main()
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Register {
  Register(std::string name, std::function<void()> body) { cases().push_back({std::move(name), std::move(body)}); }
};

inline void report(bool ok, std::string_view what, const char* file, int line) {
  if (ok) return;
  ++failures();
  std::cerr << file << ":" << line << ": " << what << "\n";
}

inline void near(double got, double want, std::string_view what, const char* file, int line) {
  const bool ok = std::abs(got - want) <= 1e-12 * std::max(1.0, std::abs(want));
  if (!ok) std::cerr << what << " is " << got << ", expected " << want << "\n";
  report(ok, what, file, line);
}

template <class Body>
void throws(Body&& body, std::string_view part, std::string_view what, const char* file, int line) {
  try {
    body();
  } catch (const std::exception& error) {
    const bool ok = std::string_view(error.what()).find(part) != std::string_view::npos;
    if (!ok) std::cerr << "message was: " << error.what() << "\n";
    report(ok, what, file, line);
    return;
  }
  report(false, "nothing thrown", file, line);
}

inline int run_all() {
  for (const Case& c : cases()) {
    const int before = failures();
    try {
      c.body();
    } catch (const std::exception& error) {
      ++failures();
      std::cerr << c.name << " threw: " << error.what() << "\n";
    }
    if (failures() != before) std::cerr << "FAILED " << c.name << "\n";
  }
  std::cout << cases().size() << " tests, " << failures() << " failures\n";
  return failures() == 0 ? 0 : 1;
}

}  // namespace check

#define TEST(name)                                                  \
  static void test_##name();                                        \
  static const check::Register register_##name(#name, test_##name); \
  static void test_##name()
#define CHECK(expr) check::report((expr), #expr, __FILE__, __LINE__)
#define NEAR(got, want) check::near((got), (want), #got, __FILE__, __LINE__)
#define THROWS(expr, part) check::throws([&] { (void)(expr); }, (part), #expr, __FILE__, __LINE__)

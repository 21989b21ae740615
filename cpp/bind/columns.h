// Columns between numpy and the core: contiguous arrays in, vectors' memory out without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace wt::bind {

namespace nb = nanobind;

template <class T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class T>
std::span<const T> span_of(const Column<T>& column) {
  return {column.data(), column.size()};
}

// Hands a vector's memory to numpy without a copy.
template <class T, class A>
nb::ndarray<nb::numpy, T> array_of(std::vector<T, A>&& values, std::initializer_list<std::size_t> shape) {
  auto held = std::make_unique<std::vector<T, A>>(std::move(values));
  T* const data = held->data();
  nb::capsule owner(held.get(), [](void* p) noexcept { delete static_cast<std::vector<T, A>*>(p); });
  held.release();
  return nb::ndarray<nb::numpy, T>(data, shape, owner);
}

template <class T, class A>
nb::ndarray<nb::numpy, T> array_of(std::vector<T, A>&& values) {
  const std::size_t n = values.size();
  return array_of(std::move(values), {n});
}

// An argument that must be an array of the right type: anything else is an error and not a silent copy.
inline auto column(const char* name) { return nb::arg(name).noconvert(); }

}  // namespace wt::bind

// Python values to C++ and back, for the types that kernels' functions take and return.
//
// Convert<T> has load(object, value): false when pybind11 (3.0, as torch 2.11 and 2.13 ship it) would refuse
// the object; cast(value): a new reference; and the names that stand in pybind11's signatures. A type
// without a Convert makes the compilation fail, which sends the source to torch's own headers.
#pragma once

#include <Python.h>

#include <functional>
#include <memory>

#ifdef KB_LIGHT
#include <kb_light/torch.h>
#else
#include <kb_slim/torch.h>

// Narrow declarations of what libtorch_python exports (torch/csrc/autograd/python_variable.h, 2.11 and 2.13).
extern PyObject* THPVariableClass;
extern PyObject* ParameterClass;
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);
#endif

namespace kb_slim {

// A Python error is set and travels on as it is.
struct PythonError {};

// One owned reference.
class Owned {
 public:
  explicit Owned(PyObject* object) : object_(object) {}
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_;
};

template <class T, class = void>
struct Convert;

#ifdef KB_LIGHT
template <>
struct Convert<at::Tensor> {
  static bool load(PyObject* object, at::Tensor& value) {
    kb_bridge::Handle handle;
    const bool is_tensor = kb_bridge::from_python(object, handle);
    if (is_tensor) {
      value = at::Tensor(handle);
    }
    return is_tensor;
  }
  static PyObject* cast(const at::Tensor& value) { return kb_bridge::to_python(value.handle()); }
  static std::string argument() { return "torch.Tensor"; }
  static std::string result() { return "torch.Tensor"; }
};
#else
template <>
struct Convert<at::Tensor> {
  // The head of the Python object behind a tensor.
  struct Object {
    PyObject_HEAD
    at::Tensor tensor;
  };

  static bool load(PyObject* object, at::Tensor& value) {
    const bool is_parameter = reinterpret_cast<PyObject*>(Py_TYPE(object)) == ParameterClass;
    const int is_tensor = is_parameter ? 1 : PyObject_IsInstance(object, THPVariableClass);
    if (is_tensor < 0) {
      throw PythonError{};
    }
    if (is_tensor != 0) {
      value = reinterpret_cast<Object*>(object)->tensor;
    }
    return is_tensor != 0;
  }
  static PyObject* cast(const at::Tensor& value) { return THPVariable_Wrap(value); }
  static std::string argument() { return "torch.Tensor"; }
  static std::string result() { return "torch.Tensor"; }
};
#endif

template <>
struct Convert<bool> {
  static bool load(PyObject* object, bool& value) {
    if (object == Py_True || object == Py_False || object == Py_None) {
      value = object == Py_True;
      return true;
    }
    const auto* number = Py_TYPE(object)->tp_as_number;
    const int truth = number != nullptr && number->nb_bool != nullptr ? number->nb_bool(object) : -1;
    if (truth != 0 && truth != 1) {
      PyErr_Clear();
      return false;
    }
    value = truth == 1;
    return true;
  }
  static PyObject* cast(bool value) { return PyBool_FromLong(value ? 1 : 0); }
  static std::string argument() { return "bool"; }
  static std::string result() { return "bool"; }
};

template <class T>
struct Convert<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static bool load(PyObject* object, T& value) {
    double number = PyFloat_AsDouble(object);
    if (number == -1.0 && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      if (PyNumber_Check(object) == 0) {
        return false;
      }
      Owned converted(PyNumber_Float(object));
      if (!converted) {
        PyErr_Clear();
        return false;
      }
      number = PyFloat_AS_DOUBLE(converted.get());
    }
    value = static_cast<T>(number);
    return true;
  }
  static PyObject* cast(T value) { return PyFloat_FromDouble(static_cast<double>(value)); }
  static std::string argument() { return "typing.SupportsFloat | typing.SupportsIndex"; }
  static std::string result() { return "float"; }
};

template <class T>
inline constexpr bool is_plain_integer =
    std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> &&
    !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>;

template <class T>
struct Convert<T, std::enable_if_t<is_plain_integer<T>>> {
  using Wide = std::conditional_t<std::is_signed_v<T>, long, unsigned long>;
  static_assert(sizeof(T) <= sizeof(long));

  enum class Outcome { ok, out_of_range, error };

  static Outcome read(PyObject* object, T& value) {
    Wide wide;
    if constexpr (std::is_signed_v<T>) {
      wide = PyLong_AsLong(object);
    } else {
      wide = PyLong_AsUnsignedLong(object);
    }
    if (wide == static_cast<Wide>(-1) && PyErr_Occurred() != nullptr) {
      PyErr_Clear();
      return Outcome::error;
    }
    value = static_cast<T>(wide);
    return static_cast<Wide>(value) == wide ? Outcome::ok : Outcome::out_of_range;
  }

  static bool load(PyObject* object, T& value) {
    if (PyFloat_Check(object)) {
      return false;
    }
    const Outcome outcome = read(object, value);
    if (outcome != Outcome::error) {
      return outcome == Outcome::ok;
    }
    if (PyNumber_Check(object) == 0) {
      return false;
    }
    Owned converted(PyNumber_Long(object));
    PyErr_Clear();
    return converted && read(converted.get(), value) == Outcome::ok;
  }

  static PyObject* cast(T value) {
    if constexpr (std::is_signed_v<T>) {
      return PyLong_FromLong(value);
    } else {
      return PyLong_FromUnsignedLong(value);
    }
  }
  static std::string argument() { return "typing.SupportsInt | typing.SupportsIndex"; }
  static std::string result() { return "int"; }
};

template <>
struct Convert<std::string> {
  static bool load(PyObject* object, std::string& value) {
    Py_ssize_t size = 0;
    if (PyUnicode_Check(object)) {
      const char* text = PyUnicode_AsUTF8AndSize(object, &size);
      if (text == nullptr) {
        PyErr_Clear();
        return false;
      }
      value.assign(text, size);
    } else if (PyBytes_Check(object)) {
      value.assign(PyBytes_AS_STRING(object), PyBytes_GET_SIZE(object));
    } else if (PyByteArray_Check(object)) {
      value.assign(PyByteArray_AS_STRING(object), PyByteArray_GET_SIZE(object));
    } else {
      return false;
    }
    return true;
  }
  static PyObject* cast(const std::string& value) {
    return PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), nullptr);
  }
  static std::string argument() { return "str"; }
  static std::string result() { return "str"; }
};

template <class T>
struct Convert<std::optional<T>> {
  static bool load(PyObject* object, std::optional<T>& value) {
    if (object == Py_None) {
      value.reset();
      return true;
    }
    return Convert<T>::load(object, value.emplace());
  }
  static PyObject* cast(const std::optional<T>& value) {
    return value ? Convert<T>::cast(*value) : Py_NewRef(Py_None);
  }
  static std::string argument() { return Convert<T>::argument() + " | None"; }
  static std::string result() { return Convert<T>::result() + " | None"; }
};

// True for what may become a vector: sequences that are no text, generators, sets, and dict views.
inline bool is_listlike(PyObject* object) {
  if (PySequence_Check(object)) {
    return !PyUnicode_Check(object) && !PyBytes_Check(object);
  }
  const std::string type = Py_TYPE(object)->tp_name;
  return PyGen_Check(object) || PyAnySet_Check(object) || type == "dict_keys" || type == "dict_values" ||
      type == "dict_items" || type == "map" || type == "zip";
}

template <class T>
struct Convert<std::vector<T>> {
  static bool load(PyObject* object, std::vector<T>& value) {
    if (!is_listlike(object)) {
      return false;
    }
    Owned items(PySequence_Tuple(object));
    if (!items) {
      throw PythonError{};
    }
    value.clear();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
      T item{};
      if (!Convert<T>::load(PyTuple_GET_ITEM(items.get(), i), item)) {
        return false;
      }
      value.push_back(std::move(item));
    }
    return true;
  }
  static PyObject* cast(const std::vector<T>& value) {
    Owned list(PyList_New(static_cast<Py_ssize_t>(value.size())));
    for (size_t i = 0; list && i < value.size(); ++i) {
      PyObject* item = Convert<T>::cast(value[i]);
      if (item == nullptr) {
        return nullptr;
      }
      PyList_SET_ITEM(list.get(), i, item);
    }
    return list.release();
  }
  static std::string argument() { return "collections.abc.Sequence[" + Convert<T>::argument() + "]"; }
  static std::string result() { return "list[" + Convert<T>::result() + "]"; }
};

// Tuples and pairs are only returned, never taken.
template <class... Ts>
struct ConvertTuple {
  template <class Tuple>
  static PyObject* cast(const Tuple& value) {
    return std::apply(
        [](const auto&... items) -> PyObject* {
          Owned tuple(PyTuple_New(sizeof...(items)));
          Py_ssize_t index = 0;
          auto place = [&](PyObject* item) { return item != nullptr && PyTuple_SetItem(tuple.get(), index++, item) == 0; };
          const bool done = tuple && (place(Convert<std::decay_t<decltype(items)>>::cast(items)) && ...);
          return done ? tuple.release() : nullptr;
        },
        value);
  }
  static std::string result() {
    std::string names;
    ((names += (names.empty() ? "" : ", ") + Convert<Ts>::result()), ...);
    return "tuple[" + names + "]";
  }
};

template <class... Ts>
struct Convert<std::tuple<Ts...>> : ConvertTuple<Ts...> {};

template <class T, class U>
struct Convert<std::pair<T, U>> : ConvertTuple<T, U> {};

} // namespace kb_slim

// One C++ function as a Python callable, with pybind11's rules for arguments and its error messages.
#pragma once

#include <kb_slim/convert.h>

namespace torch {

// Exported by libtorch_python (torch/csrc/Exceptions.h, 2.11 and 2.13): sets the Python error for a C++ exception.
void translate_exception_to_python(const std::exception_ptr& exception);

// Also from there: while one lives, C++ warnings become Python warnings. Only its size and its last
// member matter here; constructor and destructor are libtorch_python's.
struct PyWarningHandler {
  PyWarningHandler() noexcept(true);
  ~PyWarningHandler() noexcept(false);
  void set_in_exception() { in_exception = true; }

  void* handler;
  std::vector<c10::Warning> warnings;
  void* previous;
  bool in_exception;
};

} // namespace torch

namespace kb_slim {

struct Parameter {
  std::string name;
  PyObject* fallback;
};

struct Function {
  using Call = std::function<PyObject*(PyObject* const* slots, bool& fits)>;

  PyMethodDef definition;
  std::string name;
  std::string signature;
  std::string doc;
  size_t count;
  std::vector<Parameter> parameters;
  Call call;
};

inline std::string text_of(PyObject* object) {
  Owned text(PyObject_Repr(object));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (utf8 == nullptr) {
    PyErr_Clear();
    return "<repr raised Error>";
  }
  return utf8;
}

// The TypeError for a call that fits no signature; `values` holds positional, then keyword arguments.
inline PyObject* refuse(const Function& function, PyObject* const* values, Py_ssize_t given, PyObject* names) {
  std::string message = function.name + "(): incompatible function arguments. The following argument types are supported:\n";
  message += "    1. " + function.signature + "\n\nInvoked with: ";
  for (Py_ssize_t i = 0; i < given; ++i) {
    message += (i > 0 ? ", " : "") + text_of(values[i]);
  }
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    message += i > 0 ? ", " : given > 0 ? "; kwargs: " : "kwargs: ";
    message += std::string(PyUnicode_AsUTF8(PyTuple_GET_ITEM(names, i))) + "=" + text_of(values[given + i]);
  }
  PyErr_SetString(PyExc_TypeError, message.c_str());
  return nullptr;
}

// Sets the Python error for the exception in flight, by pybind11's table.
inline PyObject* translate_current_exception() {
  auto raise = [](PyObject* type, const char* message) -> PyObject* {
    PyErr_SetString(type, message);
    return nullptr;
  };
  try {
    throw;
  } catch (const PythonError&) {
    return nullptr;
  } catch (const std::bad_alloc& e) {
    return raise(PyExc_MemoryError, e.what());
  } catch (const std::domain_error& e) {
    return raise(PyExc_ValueError, e.what());
  } catch (const std::invalid_argument& e) {
    return raise(PyExc_ValueError, e.what());
  } catch (const std::length_error& e) {
    return raise(PyExc_ValueError, e.what());
  } catch (const std::out_of_range& e) {
    return raise(PyExc_IndexError, e.what());
  } catch (const std::range_error& e) {
    return raise(PyExc_ValueError, e.what());
  } catch (const std::overflow_error& e) {
    return raise(PyExc_OverflowError, e.what());
  } catch (const std::exception& e) {
    return raise(PyExc_RuntimeError, e.what());
  } catch (...) {
    return raise(PyExc_RuntimeError, "Caught an unknown exception!");
  }
}

// Fills one slot per parameter from positional arguments, keywords and defaults; false if they don't fit.
inline bool place(
    const Function& function, PyObject* const* values, Py_ssize_t given, PyObject* names, PyObject** slots) {
  const Py_ssize_t count = static_cast<Py_ssize_t>(function.count);
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  if (given > count) {
    return false;
  }
  std::copy(values, values + given, slots);
  Py_ssize_t used = 0;
  for (Py_ssize_t i = given; i < count; ++i) {
    slots[i] = nullptr;
    if (function.parameters.empty()) {
      return false;
    }
    const Parameter& parameter = function.parameters[i];
    for (Py_ssize_t k = 0; k < named; ++k) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, k), parameter.name.c_str()) == 0) {
        slots[i] = values[given + k];
        ++used;
      }
    }
    if (slots[i] == nullptr) {
      slots[i] = parameter.fallback;
    }
    if (slots[i] == nullptr) {
      return false;
    }
  }
  return used == named;
}

inline const char* capsule_name() { return "kb_slim.function"; }

inline PyObject* enter(PyObject* self, PyObject* const* values, Py_ssize_t given, PyObject* names) {
  const auto& function = *static_cast<Function*>(PyCapsule_GetPointer(self, capsule_name()));
  try {
    std::vector<PyObject*> slots(function.count);
    bool fits = place(function, values, given, names, slots.data());
    PyObject* result = fits ? function.call(slots.data(), fits) : nullptr;
    return fits ? result : refuse(function, values, given, names);
  } catch (...) {
    return translate_current_exception();
  }
}

template <class T>
std::string result_name() {
  if constexpr (std::is_void_v<T>) {
    return "None";
  } else {
    return Convert<std::decay_t<T>>::result();
  }
}

template <class... Arguments>
std::string signature_of(const std::vector<Parameter>& parameters, const std::string& result) {
  std::string text;
  size_t index = 0;
  auto add = [&](const std::string& type) {
    const bool is_named = !parameters.empty();
    text += (index > 0 ? ", " : "") + (is_named ? parameters[index].name : "arg" + std::to_string(index)) + ": " + type;
    if (is_named && parameters[index].fallback != nullptr) {
      text += " = " + text_of(parameters[index].fallback);
    }
    ++index;
  };
  (add(Convert<std::decay_t<Arguments>>::argument()), ...);
  return "(" + text + ") -> " + result;
}

template <class Result, class Callable, class... Arguments, size_t... I>
PyObject* convert_and_call(
    Callable& callable, PyObject* const* slots, bool& fits, std::tuple<Arguments...>*, std::index_sequence<I...>) {
  std::tuple<std::decay_t<Arguments>...> values;
  fits = (Convert<std::decay_t<Arguments>>::load(slots[I], std::get<I>(values)) && ...);
  if (!fits) {
    return nullptr;
  }
  if constexpr (std::is_void_v<Result>) {
    callable(std::forward<Arguments>(std::get<I>(values))...);
    return Py_NewRef(Py_None);
  } else {
    return Convert<std::decay_t<Result>>::cast(callable(std::forward<Arguments>(std::get<I>(values))...));
  }
}

// A callable's result and parameter types: a function pointer, a lambda, or torch::wrap_pybind_function's wrapper.
template <class T>
struct Traits : Traits<decltype(&T::operator())> {};
template <class R, class... A>
struct Traits<R (*)(A...)> {
  using Result = R;
  using Arguments = std::tuple<A...>;
};
template <class R, class C, class... A>
struct Traits<R (C::*)(A...) const> : Traits<R (*)(A...)> {};
template <class R, class C, class... A>
struct Traits<R (C::*)(A...)> : Traits<R (*)(A...)> {};

template <class Callable, class... Arguments>
PyObject* make_function(
    PyObject* module, const char* name, const char* doc, Callable callable, std::vector<Parameter> parameters,
    std::tuple<Arguments...>* types) {
  using Result = typename Traits<Callable>::Result;
  auto function = std::make_unique<Function>();
  function->name = name;
  function->signature = signature_of<Arguments...>(parameters, result_name<Result>());
  function->doc = name + function->signature + "\n" + (*doc != '\0' ? "\n" + std::string(doc) + "\n" : "");
  function->count = sizeof...(Arguments);
  function->parameters = std::move(parameters);
  function->call = [callable, types](PyObject* const* slots, bool& fits) mutable {
    return convert_and_call<Result>(callable, slots, fits, types, std::index_sequence_for<Arguments...>{});
  };
  auto* entry = reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(enter));
  function->definition = {function->name.c_str(), entry, METH_FASTCALL | METH_KEYWORDS, function->doc.c_str()};
  Owned module_name(PyModule_GetNameObject(module));
  Owned capsule(PyCapsule_New(function.get(), capsule_name(), nullptr));
  if (!module_name || !capsule) {
    throw PythonError{};
  }
  return PyCFunction_NewEx(&function.release()->definition, capsule.get(), module_name.get());
}

} // namespace kb_slim

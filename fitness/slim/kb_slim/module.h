// The part of pybind11 that kernels use: PYBIND11_MODULE, m.def with py::arg and defaults, m.doc.
#pragma once

#include <kb_slim/function.h>

namespace kb_slim::binding {

// A default value of a named argument.
template <class T>
struct arg_v {
  const char* name;
  T value;
};

struct arg {
  explicit arg(const char* name_) : name(name_) {}
  template <class T>
  arg_v<std::decay_t<T>> operator=(T&& value) const {
    return {name, std::forward<T>(value)};
  }
  const char* name;
};

// None as a default.
struct none {};

inline void apply(const char* doc, const char*& into, std::vector<Parameter>&) { into = doc; }

inline void apply(const arg& named, const char*&, std::vector<Parameter>& parameters) {
  parameters.push_back({named.name, nullptr});
}

template <class T>
void apply(const arg_v<T>& named, const char*&, std::vector<Parameter>& parameters) {
  PyObject* fallback = Py_NewRef(Py_None);
  if constexpr (!std::is_same_v<T, std::nullopt_t> && !std::is_same_v<T, none>) {
    fallback = Convert<T>::cast(named.value);
  }
  if (fallback == nullptr) {
    throw PythonError{};
  }
  parameters.push_back({named.name, fallback});
}

template <class T>
inline constexpr bool is_argument = false;
template <>
inline constexpr bool is_argument<arg> = true;
template <class T>
inline constexpr bool is_argument<arg_v<T>> = true;

class module_ {
 public:
  explicit module_(PyObject* module) : module_object_(module) {}

  template <class Callable, class... Extra>
  module_& def(const char* name, Callable&& callable, const Extra&... extra) {
    using Plain = std::decay_t<Callable>;
    using Arguments = typename Traits<Plain>::Arguments;
    constexpr size_t named = (size_t{0} + ... + (is_argument<Extra> ? 1 : 0));
    static_assert(named == 0 || named == std::tuple_size_v<Arguments>, "py::arg must be given for all arguments");
    if (PyObject_HasAttrString(module_object_, name)) {
      PyErr_Format(PyExc_ImportError, "%s is defined twice; overloads need pybind11's own headers", name);
      throw PythonError{};
    }
    const char* doc = "";
    std::vector<Parameter> parameters;
    (apply(extra, doc, parameters), ...);
    Arguments* types = nullptr;
    PyObject* function =
        make_function(module_object_, name, doc, Plain(std::forward<Callable>(callable)), std::move(parameters), types);
    if (function == nullptr || PyModule_AddObject(module_object_, name, function) != 0) {
      throw PythonError{};
    }
    return *this;
  }

  class Doc {
   public:
    explicit Doc(PyObject* module) : documented_(module) {}
    void operator=(const char* text) { PyModule_SetDocString(documented_, text); }

   private:
    PyObject* documented_;
  };
  Doc doc() { return Doc(module_object_); }

 private:
  PyObject* module_object_;
};

using module = module_;

class gil_scoped_release {
 public:
  gil_scoped_release() : state_(PyEval_SaveThread()) {}
  gil_scoped_release(const gil_scoped_release&) = delete;
  gil_scoped_release& operator=(const gil_scoped_release&) = delete;
  ~gil_scoped_release() { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* state_;
};

inline PyObject* initialise(PyModuleDef& definition, void (*fill)(module_&)) {
  Owned module_object(PyModule_Create(&definition));
  if (!module_object) {
    return nullptr;
  }
  try {
    module_ wrapped(module_object.get());
    fill(wrapped);
  } catch (...) {
    return translate_current_exception();
  }
  return module_object.release();
}

} // namespace kb_slim::binding

// torch itself opens a namespace pybind11, so this can't be an alias.
namespace pybind11 {
using namespace kb_slim::binding;
}
namespace py = pybind11;

namespace torch {

// A function whose C++ exceptions and warnings become Python's the way torch's own operators do it.
template <class Result, class... Arguments>
auto wrap_pybind_function(Result (*function)(Arguments...)) {
  return [function](Arguments... arguments) -> Result {
    try {
      PyWarningHandler handler;
      try {
        return function(std::forward<Arguments>(arguments)...);
      } catch (...) {
        handler.set_in_exception();
        throw;
      }
    } catch (const kb_slim::PythonError&) {
      throw;
    } catch (const std::exception&) {
      translate_exception_to_python(std::current_exception());
      throw kb_slim::PythonError{};
    }
  };
}

} // namespace torch

#define KB_SLIM_JOIN_(left, right) left##right
#define KB_SLIM_JOIN(left, right) KB_SLIM_JOIN_(left, right)
#define KB_SLIM_TEXT_(token) #token
#define KB_SLIM_TEXT(token) KB_SLIM_TEXT_(token)

#define PYBIND11_MODULE(name, variable)                                                          \
  static void KB_SLIM_JOIN(kb_slim_fill_, name)(::kb_slim::binding::module_&);                   \
  extern "C" __attribute__((visibility("default"))) PyObject* KB_SLIM_JOIN(PyInit_, name)() {    \
    static PyModuleDef definition = {                                                            \
        PyModuleDef_HEAD_INIT, KB_SLIM_TEXT(name), nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr}; \
    return ::kb_slim::binding::initialise(definition, KB_SLIM_JOIN(kb_slim_fill_, name));        \
  }                                                                                              \
  static void KB_SLIM_JOIN(kb_slim_fill_, name)([[maybe_unused]] ::kb_slim::binding::module_& variable)

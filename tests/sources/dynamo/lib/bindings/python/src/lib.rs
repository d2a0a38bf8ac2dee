//! `dynamo._core`: says where the runtime was compiled.

use std::ffi::c_void;
use std::ptr;

use pyo3_ffi::{MethodDef, ModuleDef, PyModule_Create2, PyUnicode_FromStringAndSize, API_VERSION, METH_NOARGS};

struct Shared<T>(std::cell::UnsafeCell<T>);

// CPython holds its lock whenever it reads or writes these.
unsafe impl<T> Sync for Shared<T> {}

unsafe extern "C" fn describe(_module: *mut c_void, _arguments: *mut c_void) -> *mut c_void {
    let text = format!("{} {}", dynamo_runtime::source(), dynamo_runtime::identity());
    PyUnicode_FromStringAndSize(text.as_ptr().cast(), text.len() as isize)
}

static METHODS: Shared<[MethodDef; 2]> = Shared(std::cell::UnsafeCell::new([
    MethodDef {
        name: c"describe".as_ptr(),
        function: Some(describe),
        flags: METH_NOARGS,
        doc: ptr::null(),
    },
    MethodDef { name: ptr::null(), function: None, flags: 0, doc: ptr::null() },
]));

static MODULE: Shared<ModuleDef> = Shared(std::cell::UnsafeCell::new(ModuleDef {
    head: [1, 0, 0, 0, 0],
    name: c"_core".as_ptr(),
    doc: ptr::null(),
    size: -1,
    methods: METHODS.0.get().cast(),
    slots: [0; 4],
}));

#[no_mangle]
pub extern "C" fn PyInit__core() -> *mut c_void {
    unsafe { PyModule_Create2(MODULE.0.get(), API_VERSION) }
}

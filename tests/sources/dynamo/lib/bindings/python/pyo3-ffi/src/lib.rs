//! Three functions of CPython's stable interface.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct MethodDef {
    pub name: *const c_char,
    pub function: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> *mut c_void>,
    pub flags: c_int,
    pub doc: *const c_char,
}

#[repr(C)]
pub struct ModuleDef {
    pub head: [usize; 5],
    pub name: *const c_char,
    pub doc: *const c_char,
    pub size: isize,
    pub methods: *mut MethodDef,
    pub slots: [usize; 4],
}

pub const METH_NOARGS: c_int = 4;
pub const API_VERSION: c_int = 3;

extern "C" {
    pub fn PyModule_Create2(definition: *mut ModuleDef, version: c_int) -> *mut c_void;
    pub fn PyUnicode_FromStringAndSize(text: *const c_char, size: isize) -> *mut c_void;
}

//! Causal profiling without any process: the policy that decides which experiment comes next, the
//! estimator that turns windows into curves, intervals and verdicts, and the files of Coz. Pure: values of
//! `store::causal` come in, values go out; a simulator of threads, cores and locks tests all of it.

#![forbid(unsafe_code)]

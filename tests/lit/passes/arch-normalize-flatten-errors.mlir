// RUN: trc-opt %s -p arch-normalize-flatten --verify-diagnostics

arch.model @unknown(%x: tensor<?x8x8x4xf32>) {
  // expected-error@+1 {{layer 'fc1': its shape is not known yet: run arch-deduce-shapes first}}
  %0 = arch.fc %x {out_features = 3} layer "fc1"
  arch.output %0
}

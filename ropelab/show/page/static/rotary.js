// The mathematics of the sliders: frequencies, scaling methods, sums of cosines, rounding to number
// formats. Everything is a function of its arguments; the tests compare each with the package.

const TWO_PI = 2 * Math.PI;

// theta_i = base^(-2i/d), radians per token.
function frequencies(rotaryDim, base) {
  return Array.from({ length: rotaryDim / 2 }, (_, i) => base ** (-(2 * i) / rotaryDim));
}

const wavelengthsOf = (theta) => theta.map((one) => TWO_PI / one);
const rotationsOf = (theta, length) => theta.map((one) => one * (length / TWO_PI));
const clamped = (x) => Math.min(1, Math.max(0, x));
const blended = (theta, kept, stretch) => theta.map((one, i) => kept[i] * one + ((1 - kept[i]) * one) / stretch);
const magnitude = (factor, mscale = 1) => 0.1 * mscale * Math.log(factor) + 1;

function rampInRotations(theta, trained, slow, fast) {
  const width = fast - slow || 1e-200; // equal ends are a step
  return rotationsOf(theta, trained).map((r) => clamped((r - slow) / width));
}

// The fractional pair that makes r rotations in the trained length.
function pairWithRotations({ rotaryDim, base, trained }, r) {
  return (rotaryDim * Math.log(trained / (r * TWO_PI))) / (2 * Math.log(base));
}

function endsOfRamp(geometry, { beta_fast: fast, beta_slow: slow, truncate }) {
  let [low, high] = [pairWithRotations(geometry, fast), pairWithRotations(geometry, slow)];
  if (truncate) [low, high] = [Math.floor(low), Math.ceil(high)];
  return [Math.max(low, 0), Math.min(high, geometry.rotaryDim - 1)];
}

function rampInPairs(geometry, parameters) {
  const [low, high] = endsOfRamp(geometry, parameters);
  const width = high === low ? 0.001 : high - low;
  return Array.from({ length: geometry.rotaryDim / 2 }, (_, i) => 1 - clamped((i - low) / width));
}

function ntkBase({ rotaryDim, base }, factor) {
  return base * factor ** (rotaryDim / (rotaryDim - 2));
}

const plain = (theta, attention = 1) => ({ theta, attention });

// Every method: from a geometry {rotaryDim, base, trained}, its parameters, the length in the context and
// the unscaled frequencies to {theta, attention}. A stretch of 1 changes nothing.
const METHODS = {
  unscaled: (geometry, parameters, length, theta) => plain(theta),
  pi: (geometry, { factor }, length, theta) => plain(theta.map((one) => one / factor)),
  ntk: (geometry, { factor }) => plain(frequencies(geometry.rotaryDim, ntkBase(geometry, factor))),
  dynamic_ntk: (geometry, { factor }, length, theta) => {
    const stretch = 1 + factor * (Math.max(length, geometry.trained) / geometry.trained - 1);
    return stretch === 1 ? plain(theta) : METHODS.ntk(geometry, { factor: stretch });
  },
  ntk_by_parts: (geometry, { factor, alpha, beta }, length, theta) => plain(blended(theta, rampInRotations(theta, geometry.trained, alpha, beta), factor)),
  yarn_paper: (geometry, parameters, length, theta) => {
    const { theta: scaled } = METHODS.ntk_by_parts(geometry, parameters, length, theta);
    return plain(scaled, parameters.attention_factor ?? magnitude(parameters.factor));
  },
  yarn: (geometry, parameters, length, theta) => {
    if (parameters.factor === 1) return plain(theta, parameters.attention_factor ?? 1);
    const { factor, mscale, mscale_all_dim: all } = parameters;
    const computed = mscale && all ? magnitude(factor, mscale) / magnitude(factor, all) : magnitude(factor);
    return plain(blended(theta, rampInPairs(geometry, parameters), factor), parameters.attention_factor ?? computed);
  },
  mrrope: (geometry, parameters, length, theta) => {
    const [low, high] = endsOfRamp(geometry, parameters);
    const power = (kept) => (parameters.uniform ? 1 - kept : ((1 - kept) * ((high - low) * (1 - kept) + 1)) / (high - low + 1));
    const scaled = rampInPairs(geometry, parameters).map((kept, i) => theta[i] / parameters.factor ** power(kept));
    return plain(scaled, magnitude(parameters.factor));
  },
  dynamic_yarn: (geometry, parameters, length, theta) => {
    const stretch = length / geometry.trained;
    return stretch <= 1 ? plain(theta) : plain(blended(theta, rampInPairs(geometry, parameters), stretch), magnitude(stretch));
  },
  llama3: (geometry, { factor, low_freq_factor: low, high_freq_factor: high }, length, theta) => plain(blended(theta, rampInRotations(theta, geometry.trained, low, high), factor)),
  resonance: (geometry, parameters, length, theta) => plain(wavelengthsOf(theta).map((one) => TWO_PI / halfToEven(one))),
  clipped: (geometry, { n }, length, theta) => {
    const count = Math.min(n || rotationsOf(theta, geometry.trained).filter((r) => r < 1).length, theta.length);
    const first = theta.length - count;
    return plain(theta.map((one, i) => (i < first || count === 1 ? one : one * ((1 + Math.cos((Math.PI * (i - first)) / (count - 1))) / 2))));
  },
  p_rope: (geometry, { p }, length, theta) => plain(theta.map((one, i) => (i < Math.floor((p * geometry.rotaryDim) / 2) ? one : 0))),
  proportional: (geometry, { p, factor }, length, theta) => plain(METHODS.p_rope(geometry, { p }, length, theta).theta.map((one) => one / factor)),
  abf: (geometry, { base }) => plain(frequencies(geometry.rotaryDim, base)),
};

function planOf(geometry, method, parameters, length) {
  return METHODS[method](geometry, parameters, length, frequencies(geometry.rotaryDim, geometry.base));
}

// The sum of cosines over distance; a feature pair that is not rotated contributes 1.
function sumOfCosines(theta, unrotated, distance) {
  return theta.reduce((sum, one) => sum + Math.cos(distance * one), unrotated);
}

// The bound of Su et al. 2021 (eq. 37): the mean length of the partial sums of e^(i m theta).
function decayBound(theta, distance) {
  let [real, imaginary, total] = [0, 0, 0];
  for (const one of theta) {
    real += Math.cos(distance * one);
    imaginary += Math.sin(distance * one);
    total += Math.hypot(real, imaginary);
  }
  return total / theta.length;
}

function halfToEven(x) {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest !== 0.5) return rest < 0.5 ? floor : floor + 1;
  return floor % 2 === 0 ? floor : floor + 1;
}

const bits = new DataView(new ArrayBuffer(8));

function exponentOf(x) {
  bits.setFloat64(0, x);
  return ((bits.getUint32(0) >>> 20) & 0x7ff) - 1023;
}

// To the nearest value of a format, ties to even: normals, subnormals, signed zeros and overflow.
function roundTo(x, format) {
  if (format.precision === 53 || x === 0 || Number.isNaN(x)) return x;
  const overflow = Math.sign(x) * format.overflow;
  if (!Number.isFinite(x)) return overflow;
  const exponent = Math.max(exponentOf(x), format.min_exponent);
  const step = 2 ** (exponent - format.precision + 1);
  const rounded = Math.sign(x) * halfToEven(Math.abs(x) / step) * step;
  return Math.abs(rounded) > format.largest ? overflow : rounded;
}

// Stored angle minus m theta, radians, with one stage of the chain rounded and the others exact.
const STAGES = {
  position: (theta, m, format) => theta * (roundTo(m, format) - m),
  inv_freq: (theta, m, format) => (roundTo(theta, format) - theta) * m,
  angle: (theta, m, format) => roundTo(theta * m, format) - theta * m,
};

function wrappedSize(angle) {
  return Number.isFinite(angle) ? Math.abs(angle - TWO_PI * Math.round(angle / TWO_PI)) : Math.PI;
}

// The largest angle error at a position over all pairs, brought back to at most half a rotation.
function worstAngleError(theta, m, stage, format) {
  return Math.max(...theta.map((one) => wrappedSize(STAGES[stage](one, m, format))));
}
